"""What a game reports reaches the trainer as it was."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.rollouts.channel import GameFailed, GameLost, Report
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
