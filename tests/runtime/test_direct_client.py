"""Requests of one moment travel together; each gets its own answer, or its own error, as soon as it is there."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.runtime.direct_client import Here, Line, Servers
from tests.workers.engine.fakes import Streaming


async def echo(prompt_ids: list[int]) -> TokenOutput:
    for _ in range(prompt_ids[0] % 5):
        await asyncio.sleep(0)
    return TokenOutput(token_ids=prompt_ids)


async def ask(servers: Servers, numbers: Sequence[int]) -> list[Any]:
    return await asyncio.gather(
        *(servers.generate({"prompt_ids": [number]}) for number in numbers), return_exceptions=True
    )


def test_requests_of_one_moment_are_one_call_and_each_has_its_answer() -> None:
    server = Streaming(echo)
    answers = asyncio.run(ask(Servers([Line(server)]), range(100)))
    assert [answer.token_ids for answer in answers] == [[number] for number in range(100)]
    assert server.calls == [100]


def test_an_answer_does_not_wait_for_the_others() -> None:
    async def run() -> None:
        release = asyncio.Event()

        async def generate(prompt_ids: list[int]) -> TokenOutput:
            if prompt_ids == [1]:
                await release.wait()
            return TokenOutput(token_ids=prompt_ids)

        servers = Servers([Line(Streaming(generate))])
        slow = asyncio.create_task(servers.generate({"prompt_ids": [1]}))
        quick = await asyncio.wait_for(servers.generate({"prompt_ids": [2]}), 5)
        assert quick.token_ids == [2] and not slow.done()
        release.set()
        assert (await slow).token_ids == [1]

    asyncio.run(run())


def test_the_server_with_the_fewest_requests_of_this_process_is_asked() -> None:
    servers = [Streaming(echo), Streaming(echo), Streaming(echo)]
    asyncio.run(ask(Servers(map(Line, servers)), range(30)))
    assert [server.calls for server in servers] == [[10], [10], [10]]


def test_processes_do_not_all_begin_with_the_same_server() -> None:
    """24 processes with one request each, as three turns on each of eight engines."""

    async def answer(request_id: str) -> TokenOutput:
        return TokenOutput(token_ids=[1])

    servers = [Streaming(answer) for _ in range(8)]

    async def run() -> None:
        await asyncio.gather(
            *(Servers(map(Line, servers)).generate({"request_id": f"turn-{number}"}) for number in range(24))
        )

    asyncio.run(run())
    assert (
        len([server for server in servers if server.calls]) >= 6 and max(len(server.calls) for server in servers) <= 8
    )


def test_the_server_of_this_process_is_asked_without_a_call() -> None:
    async def answer(prompt_ids: list[int]) -> TokenOutput:
        if prompt_ids == [3]:
            raise ValueError("no 3")
        return await echo(prompt_ids)

    here = Here(SimpleNamespace(answer=answer))
    answers = asyncio.run(ask(Servers([here]), range(6)))
    assert str(answers.pop(3)) == "no 3" and here.under_way == 0
    assert [answer.token_ids for answer in answers] == [[0], [1], [2], [4], [5]]


def test_an_error_is_of_its_own_request() -> None:
    async def generate(prompt_ids: list[int]) -> TokenOutput:
        if prompt_ids[0] % 2:
            raise ValueError(f"no {prompt_ids[0]}")
        return TokenOutput(token_ids=prompt_ids)

    answers = asyncio.run(ask(Servers([Line(Streaming(generate))]), range(6)))
    assert [str(answer) for answer in answers[1::2]] == ["no 1", "no 3", "no 5"]
    assert [answer.token_ids for answer in answers[::2]] == [[0], [2], [4]]


def test_a_server_that_dies_fails_what_it_has_not_answered() -> None:
    async def generate(prompt_ids: list[int]) -> TokenOutput:
        await asyncio.sleep(0 if prompt_ids == [0] else 60)
        return TokenOutput(token_ids=prompt_ids)

    line = Line(Streaming(generate, dies=True))

    async def run() -> list[Any]:
        asked = [line.generate({"prompt_ids": [number]}) for number in range(3)]
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 5)

    first, *others = asyncio.run(run())
    assert first.token_ids == [0]
    assert [str(other) for other in others] == ["the actor died"] * 2
    assert line.under_way == 0


def test_a_request_that_nobody_waits_for_disturbs_no_other() -> None:
    async def run() -> TokenOutput:
        servers = Servers([Line(Streaming(echo))])
        given_up = asyncio.create_task(servers.generate({"prompt_ids": [4]}))
        other = asyncio.create_task(servers.generate({"prompt_ids": [3]}))
        await asyncio.sleep(0)
        given_up.cancel()
        return await asyncio.wait_for(other, 5)

    assert asyncio.run(run()).token_ids == [3]


@pytest.mark.parametrize("handles", [[], ["a handle", "another"]])
def test_it_goes_into_other_processes(handles: list[str]) -> None:
    assert len(pickle.loads(pickle.dumps(Servers(map(Line, handles)))).lines) == len(handles)
