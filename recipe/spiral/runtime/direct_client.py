"""The client that asks servers itself: all that comes up at one moment goes in one call, and comes back as it ends.

verl's client makes three calls to Ray actors for each response: to the load balancer for a server, to the server, and
to the balancer again. For a small model these take longer than the response. Here a rollout worker knows the servers,
takes the one with the fewest of its own requests, and makes one call for all requests of one turn of its event loop. A
worker that is in a server's process makes no calls.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any
from zlib import crc32

import ray
from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.replica import TokenOutput

from ..workers.engine.game_client import GameClient
from ..workers.engine.resuming_client import ResumingClient

#: Keyword arguments of a server's ``generate``.
Request = Mapping[str, Any]
#: Answers that ended together: the request's number in its call, and what became of it.
Ended = list[tuple[int, TokenOutput | BaseException]]


class DirectClient(GameClient):
    """It is pickled into each rollout worker.

    Args:
        servers: the policy's.
        config, load_balancer_handle, slots: as of ``GameClient``.

    Attributes:
        whole: whether nothing breaks a response off, so that the engine need hand it over only once.
    """

    whole = True

    def __init__(
        self,
        config: DictConfig,
        load_balancer_handle: Any = None,
        servers: Sequence[Any] = (),
        slots: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(config, load_balancer_handle, slots, **kwargs)
        self._servers = Servers(map(Line, servers))
        self._slots = [Line(slot) for slot in slots]

    @property
    def servers(self) -> list[Any]:
        """The policy's servers."""
        return [line.server for line in self._servers.lines]

    def stay(self, server: Any) -> None:
        """Ask for the policy's responses nobody but a server that is in this process."""
        self._servers = Servers([Here(server)])

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response, as verl's client gives it; ``kwargs`` are what else a server's ``generate`` takes."""
        return await self.ask_whole(request_id, prompt_ids=prompt_ids, sampling_params=dict(sampling_params), **kwargs)

    @rollout_trace_op
    async def ask_whole(self, request_id: str, **asked: Any) -> TokenOutput:
        given = {name: value for name, value in asked.items() if value is not None}
        output = await self._servers.generate(self._request(request_id, **given))
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output

    async def ask_slot(self, slot: int, request_id: str, **asked: Any) -> TokenOutput:
        # if not whole, a slot that goes to sleep breaks its answers off
        return await self._slots[slot].generate(self._request(request_id, **asked))

    def _request(self, request_id: str, **asked: Any) -> dict[str, Any]:
        return {"request_id": self._vllm_request_id(request_id), "whole": self.whole, **asked}


class DirectResumingClient(ResumingClient, DirectClient):
    """The client of the asynchronous modes, whose parts come from the servers themselves."""

    whole = False


class Servers:
    """The way of one rollout worker to some servers."""

    def __init__(self, lines: Iterable[Line | Here]) -> None:
        self.lines = list(lines)

    async def generate(self, request: Request) -> TokenOutput:
        """One answer, of the server that has the fewest requests of this process.

        Of equals it is not the first: all processes would begin with that one, and leave the last ones idle.
        """
        start = crc32(str(request.get("request_id")).encode()) % len(self.lines)
        return await min(self.lines[start:] + self.lines[:start], key=lambda line: line.under_way).generate(request)


class Here:
    """The way to the server of this process."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.under_way = 0

    async def generate(self, request: Request) -> TokenOutput:
        """One answer, or the error that it ended in."""
        self.under_way += 1
        try:
            output: TokenOutput = await self.server.answer(**request)
            return output
        finally:
            self.under_way -= 1


class Line:
    """The way to a server in another process, a Ray actor with a ``generate_many`` that ``answer_many`` makes."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self._waiting: list[tuple[Request, asyncio.Future[TokenOutput]]] = []
        self._calls: set[asyncio.Task[None]] = set()
        self.under_way = 0

    async def generate(self, request: Request) -> TokenOutput:
        """One answer of this server's, or the error that it raised, or Ray's if it died."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[TokenOutput] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._send)  # after all that is ready to run now, and may ask as well
        self._waiting.append((request, answer))
        self.under_way += 1
        try:
            return await answer
        finally:
            self.under_way -= 1

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        call = asyncio.create_task(self._call(waiting))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def _call(self, waiting: Sequence[tuple[Request, asyncio.Future[TokenOutput]]]) -> None:
        requests, futures = zip(*waiting, strict=True)
        answers = dict(enumerate(futures))
        failure: Exception = RuntimeError("an engine's server left a request without an answer")
        try:
            async for ended in self.server.generate_many.options(num_returns="streaming").remote(requests):
                for number, output in await ended:
                    _settle(answers.pop(number), output)
        except Exception as error:  # Ray's: the server died
            failure = error
        for answer in answers.values():
            _settle(answer, failure)


def _settle(answer: asyncio.Future[TokenOutput], output: TokenOutput | BaseException) -> None:
    if answer.done():  # nobody waits for it any more
        return
    if isinstance(output, BaseException):
        answer.set_exception(output)
    else:
        answer.set_result(output)


async def answer_many(
    generate: Callable[..., Coroutine[Any, Any, TokenOutput]], requests: Sequence[Request]
) -> AsyncIterator[Ended]:
    """The server's side: each request's answer as soon as it is there, those of one moment together."""
    ended: asyncio.Queue[asyncio.Task[TokenOutput]] = asyncio.Queue()
    numbers = {asyncio.create_task(generate(**request)): number for number, request in enumerate(requests)}
    for task in numbers:
        task.add_done_callback(ended.put_nowait)
    while numbers:
        together = [await ended.get()]
        while not ended.empty():
            together.append(ended.get_nowait())
        yield [(numbers.pop(task), task.exception() or task.result()) for task in together]


class _Router:
    """Never made."""


#: In the place of verl's load balancer, which verl starts in any case, as an actor: Ray would give its process the
#: servers' classes, and with them import verl and vLLM, for nobody. verl makes an actor of every class, but takes one
#: that Ray has made an actor class of as it is.
NoRouter: Any = ray.remote(_Router)
NoRouter.remote = lambda servers, settings: None  # verl's call, by which an actor would start
