"""What a game reports reaches the trainer as it was, and what is ready at one moment goes in one call."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.rollouts.channel import Entry, GameFailed, GameLost, Report
from tests.fake_queue import FakeQueue
from tests.made import record, turn


def games() -> list[GameRecord]:
    """Two of one start that count, and the draw before them."""
    said = Tokens([1, 2], [3, 4], [-math.inf, -0.1], (2, 3))
    counts = record(0, rewards=(1, -1), turns=[turn(0, 0, tokens=said), turn(1, 0, usage={"cost": 0.01})])
    counts = replace(counts, key=replace(counts.key, retry=1))
    branch = record(0, turns=[turn(1, 0)], past=["[4]"])
    branch = replace(branch, key=counts.key.next_retry())
    return [counts, branch, record(0, rewards=(0.0, 0.0), discarded="draw")]


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
    return FakeQueue.install(monkeypatch)


def test_games_arrive_as_they_were_in_the_order_of_their_keys(queue: FakeQueue) -> None:
    counts, branch, draw = games()
    other = record(1, turns=[turn(0, 0)])
    asyncio.run(channel.put(other.key, Report([other])))
    asyncio.run(channel.put(counts.key, Report([draw, counts, branch])))
    played = channel.take([other.key, counts.key])
    assert played.records == [counts, branch, other]
    assert played.discarded == [draw]
    assert not queue.partitions["games"], "they are taken off"


def test_an_error_and_a_missing_report_are_named(queue: FakeQueue) -> None:
    first, second = (GameKey("train", 0, 1, index) for index in range(2))
    asyncio.run(channel.put(first, Report()))
    with pytest.raises(GameLost, match=r"^1 of 2 games were launched and never reported, the first: train-0-1-1-0$"):
        channel.take([first, second])
    asyncio.run(channel.put_failure(second, "Nim", ValueError("no stones")))
    with pytest.raises(GameFailed, match=r"^game train-0-1-1-0 of Nim failed: ValueError: no stones$"):
        channel.take([first, second])


# -- sending -----------------------------------------------------------------------------------------------------------


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
def slow(monkeypatch: pytest.MonkeyPatch) -> Queue:
    made = Queue.install(monkeypatch)
    assert isinstance(made, Queue)
    return made


async def put_each(entries: Sequence[Entry]) -> list[Any]:
    return await asyncio.gather(*(channel.send([entry]) for entry in entries), return_exceptions=True)


def row(number: int) -> Entry:
    return Entry("train", f"row{number}", {"status": "success"}, {"ids": torch.arange(number + 1), "n": number})


def test_entries_of_one_moment_are_one_call(slow: Queue) -> None:
    asyncio.run(put_each([row(number) for number in range(5)]))
    assert slow.calls == [[f"row{number}" for number in range(5)]]
    kept = slow.kv_batch_get([f"row{number}" for number in range(5)], "train")
    assert [ids.tolist() for ids in kept["ids"].unbind()] == [list(range(number + 1)) for number in range(5)]
    assert list(kept["n"]) == list(range(5))


def test_it_returns_when_the_queue_has_it(slow: Queue) -> None:
    async def run() -> None:
        first = asyncio.create_task(channel.send([row(0)]))
        for _ in range(3):
            await asyncio.sleep(0)
        second = asyncio.create_task(channel.send([row(1)]))
        await first
        assert "row0" in slow.kv_list("train")["train"] and not second.done()
        await second
        assert "row1" in slow.kv_list("train")["train"]

    asyncio.run(run())
    assert slow.calls == [["row0"], ["row1"]]


def test_whoever_put_it_hears_of_a_failure(slow: Queue) -> None:
    slow.fails = True
    assert [str(error) for error in asyncio.run(put_each([row(0), row(1)]))] == ["the queue is gone"] * 2
    slow.fails = False
    assert asyncio.run(put_each([row(2)])) == [None]
