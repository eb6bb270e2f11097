"""What is ready at one moment goes into TransferQueue in one call, and nobody goes on before it is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from recipe.spiral.rollouts import channel
from recipe.spiral.rollouts.channel import Entry
from tests.fake_queue import FakeQueue


class Queue(FakeQueue):
    """Notes the keys of each call, which takes a few turns of the event loop."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[str]] = []
        self.fails = False

    async def async_kv_batch_put(self, **kwargs: Any) -> Any:
        self.calls.append(kwargs["keys"])
        for _ in range(3):
            await asyncio.sleep(0)
        if self.fails:
            raise RuntimeError("the queue is gone")
        return self.kv_batch_put(**kwargs)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue.install(monkeypatch)
    assert isinstance(made, Queue)
    return made


async def put_each(entries: Sequence[Entry]) -> list[Any]:
    return await asyncio.gather(*(channel.send([entry]) for entry in entries), return_exceptions=True)


def row(number: int) -> Entry:
    return Entry("train", f"row{number}", {"status": "success"}, {"ids": torch.arange(number + 1), "n": number})


def test_entries_of_one_moment_are_one_call(queue: Queue) -> None:
    asyncio.run(put_each([row(number) for number in range(5)]))
    assert queue.calls == [[f"row{number}" for number in range(5)]]
    kept = queue.kv_batch_get([f"row{number}" for number in range(5)], "train")
    assert [ids.tolist() for ids in kept["ids"].unbind()] == [list(range(number + 1)) for number in range(5)]
    assert list(kept["n"]) == list(range(5))


def test_it_returns_when_the_queue_has_it(queue: Queue) -> None:
    async def run() -> None:
        first = asyncio.create_task(channel.send([row(0)]))
        for _ in range(3):
            await asyncio.sleep(0)
        second = asyncio.create_task(channel.send([row(1)]))
        await first
        assert "row0" in queue.kv_list("train")["train"] and not second.done()
        await second
        assert "row1" in queue.kv_list("train")["train"]

    asyncio.run(run())
    assert queue.calls == [["row0"], ["row1"]]


def test_whoever_put_it_hears_of_a_failure(queue: Queue) -> None:
    queue.fails = True
    assert [str(error) for error in asyncio.run(put_each([row(0), row(1)]))] == ["the queue is gone"] * 2
    queue.fails = False
    assert asyncio.run(put_each([row(2)])) == [None]


def test_of_entries_that_cannot_all_be_made_none_is_sent(queue: Queue) -> None:
    async def run() -> None:
        with pytest.raises(ZeroDivisionError):
            await channel.send(row(number // (1 - number)) for number in range(2))
        await channel.send([row(7)])

    asyncio.run(run())
    assert queue.calls == [["row7"]]
