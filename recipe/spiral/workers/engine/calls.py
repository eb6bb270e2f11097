"""Many requests in one call to a server: all that come up at one moment, and answers as they end.

A call to a Ray actor takes longer than a small model's response. verl's client makes three for each: to the load
balancer for a server, to the server, and to the balancer again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import Any

from verl.workers.rollout.replica import TokenOutput

#: Keyword arguments of a server's ``answer``.
Request = Mapping[str, Any]
#: Answers that ended together: the request's number in its call, and what became of it.
Ended = list[tuple[int, TokenOutput | BaseException]]


class Line:
    """The way to a server, a Ray actor with a ``generate_many`` that ``answer_many`` makes."""

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


async def answer_many(
    answer: Callable[..., Coroutine[Any, Any, TokenOutput]], requests: Sequence[Request]
) -> AsyncIterator[Ended]:
    """The server's side: each request's answer as soon as it is there, those of one moment together."""
    ended: asyncio.Queue[asyncio.Task[TokenOutput]] = asyncio.Queue()
    numbers = {asyncio.create_task(answer(**request)): number for number, request in enumerate(requests)}
    for task in numbers:
        task.add_done_callback(ended.put_nowait)
    while numbers:
        together = [await ended.get()]
        while not ended.empty():
            together.append(ended.get_nowait())
        yield [(numbers.pop(task), task.exception() or task.result()) for task in together]
