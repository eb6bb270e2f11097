"""Requests of one moment travel together; each gets its own answer, or its own error, as soon as it is there."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from typing import Any

from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.workers.engine.calls import Line
from tests.workers.engine.fakes import Streaming


async def echo(prompt_ids: list[int]) -> TokenOutput:
    """An odd number is an error."""
    for _ in range(prompt_ids[0] % 5):
        await asyncio.sleep(0)
    if prompt_ids[0] % 2:
        raise ValueError(f"no {prompt_ids[0]}")
    return TokenOutput(token_ids=prompt_ids)


async def ask(line: Line, numbers: Sequence[int]) -> list[Any]:
    asked = (line.generate({"prompt_ids": [number]}) for number in numbers)
    return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)


def test_requests_of_one_moment_are_one_call_and_each_has_its_answer_or_error() -> None:
    server = Streaming(echo)
    line: Line = pickle.loads(pickle.dumps(Line(None)))
    line.server = server
    answers = asyncio.run(ask(line, range(100)))
    assert [answer.token_ids for answer in answers[::2]] == [[number] for number in range(0, 100, 2)]
    assert [str(answer) for answer in answers[1::2]] == [f"no {number}" for number in range(1, 100, 2)]
    assert server.calls == [100] and line.under_way == 0


def test_an_answer_does_not_wait_for_the_others() -> None:
    async def run() -> None:
        release = asyncio.Event()

        async def generate(prompt_ids: list[int]) -> TokenOutput:
            if prompt_ids == [1]:
                await release.wait()
            return TokenOutput(token_ids=prompt_ids)

        line = Line(Streaming(generate))
        slow = asyncio.create_task(line.generate({"prompt_ids": [1]}))
        quick = await asyncio.wait_for(line.generate({"prompt_ids": [2]}), 5)
        assert quick.token_ids == [2] and not slow.done()
        release.set()
        assert (await slow).token_ids == [1]

    asyncio.run(run())


def test_a_server_that_dies_fails_what_it_has_not_answered() -> None:
    async def generate(prompt_ids: list[int]) -> TokenOutput:
        await asyncio.sleep(0 if prompt_ids == [0] else 60)
        return TokenOutput(token_ids=prompt_ids)

    first, *others = asyncio.run(ask(Line(Streaming(generate, dies=True)), range(3)))
    assert first.token_ids == [0]
    assert [str(other) for other in others] == ["the actor died"] * 2
