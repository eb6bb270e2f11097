"""What the agent loops generate with: verl's clients, which ask the servers themselves, the policy's and opponents'.

A call to a Ray actor takes longer than a small model's response, and verl's client makes three for each: to the load
balancer for a server, to the server, and to the balancer again. Here all requests that come up at one moment go to a
server in one call, and their answers come as they end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4
from zlib import crc32

from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from ...players.seeds import derive_seed

#: How often a response is asked for again when the engine aborts it, as the asynchronous modes do while they train.
ATTEMPTS = 6 * 3600
#: Seconds between two of them.
PAUSE = 1.0
#: Keyword arguments of a server's ``answer``.
Request = Mapping[str, Any]
#: Answers that ended together: the request's number in its call, and what became of it.
Ended = list[tuple[int, TokenOutput | BaseException]]


class WrongWeights(RuntimeError):
    """An answer came from other weights than those that were asked."""


class Line:
    """The way to a server, ``VLLMServer`` as a Ray actor."""

    def __init__(self, server: Any) -> None:
        self.server = server
        #: Requests of this process that it has not answered.
        self.under_way = 0
        self._waiting: list[tuple[Request, asyncio.Future[TokenOutput]]] = []
        self._calls: set[asyncio.Task[None]] = set()

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


class GameClient(LLMServerClient):
    """It is pickled into each rollout worker.

    Args:
        config: verl's whole config.
        load_balancer_handle: verl's, which is not asked.
        servers: the policy's.
        slots: the opponents' servers with full weights, by slot; empty where opponents are LoRA adapters on the
            policy's own servers.

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
        super().__init__(config, load_balancer_handle, **kwargs)
        self._servers, self._slots = [*map(Line, servers)], [*map(Line, slots)]

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response of the policy's; ``kwargs`` are what else a server's ``generate`` takes."""
        return await self._ask_policy(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **kwargs)

    async def generate_as(
        self, name: str, slot: int | None, request_id: str, prompt_ids: list[int], sampling_params: Mapping[str, Any]
    ) -> TokenOutput:
        """One response of an opponent. It says in ``extra_fields["answered_by"]`` which weights gave it.

        Args:
            name: whose weights are to answer: a member that was loaded under this name, or ``BASE``.
            slot: the server that has them; None: an adapter on the policy's servers.
            request_id, prompt_ids, sampling_params: as for ``generate``.

        Raises:
            WrongWeights: other weights answered.
            RuntimeError: the slot is empty, the adapter is not loaded, or the engine broke off every attempt.
        """
        if slot is not None and not 0 <= slot < len(self._slots):
            raise RuntimeError(f"{name} is to play from slot {slot}, and there are {len(self._slots)}")
        for _ in range(ATTEMPTS):
            asked = {"prompt_ids": prompt_ids, "sampling_params": sampling_params}
            if slot is None:
                output = await self._ask_policy(request_id, **asked, adapter=name)
            else:
                output = await self._ask(self._slots[slot], request_id, **asked)
            if output.stop_reason not in ("aborted", "abort"):
                break
            await asyncio.sleep(PAUSE)
        else:
            raise RuntimeError(f"the engine broke off each of {ATTEMPTS} attempts at a response of {name}")
        answered_by = output.extra_fields.get("answered_by")
        if answered_by != name:
            raise WrongWeights(f"{name} was asked for a response, and {answered_by} answered")
        return output

    @rollout_trace_op
    async def _ask_policy(self, request_id: str, **asked: Any) -> TokenOutput:
        """A response of the policy's server that has the fewest requests of this process.

        Of equals it is not the first: all processes would begin with that one, and leave the last ones idle.
        """
        start = crc32(request_id.encode()) % len(self._servers)
        line = min(self._servers[start:] + self._servers[:start], key=lambda line: line.under_way)
        output = await self._ask(line, request_id, **asked)
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output

    async def _ask(self, line: Line, request_id: str, **asked: Any) -> TokenOutput:
        given = {name: value for name, value in asked.items() if value is not None}
        return await line.generate({"request_id": f"{request_id}-{uuid4().hex}", "whole": self.whole, **given})


class Parts(GameClient):
    """The client for one part of a response."""

    whole = False

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """Among the ``kwargs`` are the length of the response's own prompt, and the versions of the weights for each of
        its parts that has tokens, to which this one's is added."""
        sampling, versions = dict(sampling_params), kwargs.pop("versions")
        written = len(prompt_ids) - kwargs.pop("prompt_length")
        if written and sampling.get("seed") is not None:
            sampling["seed"] = derive_seed(int(sampling["seed"]), "from token", written)
        output = await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling, **kwargs)
        if output.token_ids:
            versions.append(output.extra_fields.get("global_steps"))
        return output


class ResumingClient(FullyAsyncLLMServerClient, Parts):
    """The client of the asynchronous modes, whose responses go on where an update of the weights broke them off.

    verl's client puts a response together, and asks again with the prompt and what was written so far, and with the
    same seed: vLLM would then draw the rest of the response with the random numbers that drew its beginning. So the
    parts come from ``Parts``, which is next in the order of classes, and gives each a seed of its own. The response
    says the versions of the weights that wrote a token: verl counts a part that was broken off before its first.
    """

    async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> TokenOutput:
        versions: list[int | None] = []
        of_response: dict[str, Any] = {"prompt_length": len(prompt_ids), "versions": versions}
        output = await super().generate(request_id, prompt_ids=prompt_ids, **kwargs, **of_response)
        if versions:
            output.extra_fields |= {"min_global_steps": versions[0], "max_global_steps": versions[-1]}
        return output
