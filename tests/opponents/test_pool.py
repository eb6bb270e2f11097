"""The pool's bookkeeping: who joins, who leaves, who is played, and how the policy fares."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from recipe.spiral.opponents.pool import Pool, snapshot_name
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey


def filled(count: int, **settings: Any) -> Pool:
    pool = Pool(**settings)
    for step in range(count):
        pool.add(snapshot_name(step), step)
    return pool


def game(index: int, member: str, reward: float) -> GameRecord:
    """A game that the policy plays as player 0."""
    return GameRecord(
        GameKey("train", 0, 1, index), "Nim", ("policy", member), (0,), rewards=(reward, -reward), opponent="pool"
    )


@pytest.mark.parametrize(
    ("start_from", "interval", "due"), [(0, 5, [0, 5, 10]), (3, 4, [3, 7, 11]), (0, None, []), (2, 1, [*range(2, 12)])]
)
def test_snapshots_are_due_from_start_from_on(start_from: int, interval: int | None, due: list[int]) -> None:
    pool = Pool(start_from=start_from, update_interval=interval)
    assert [step for step in range(12) if pool.due(step)] == due


def test_the_oldest_leaves_and_permanent_members_never_do() -> None:
    pool = Pool(size=3, update_interval=1)
    pool.add("base", 0, permanent=True)
    for step in range(1, 6):
        pool.add(snapshot_name(step), step)
    assert list(pool.members) == ["base", "step_000004", "step_000005"]
    pool.size = 1
    pool.add("step_000006", 6)
    assert list(pool.members) == ["base", "step_000006"], "the newest stays, too"


def test_members_are_drawn_without_replacement() -> None:
    pool = filled(5)
    for step in range(50):
        assert len(set(pool.choose(step, 3))) == 3
        assert pool.choose(step, 3) == pool.choose(step, 3)
    assert sorted(pool.choose(1, 9)) == list(pool.members)
    drawn = Counter(name for step in range(2000) for name in pool.choose(step, 1))
    assert all(abs(count - 400) < 80 for count in drawn.values()) and len(drawn) == 5


def test_hard_members_are_drawn_by_the_square_of_their_win_rate() -> None:
    pool = filled(2, sample="hard")
    easy, hard = pool.members.values()
    easy.points, easy.games = 89.5, 99.0  # w = 0.9
    hard.points, hard.games = 29.5, 99.0  # w = 0.3
    drawn = Counter(name for step in range(5000) for name in pool.choose(step, 1))
    assert drawn[easy.name] / 5000 == pytest.approx(0.01 / (0.01 + 0.49), abs=0.01)


def test_win_rates() -> None:
    pool = filled(2)
    first, second = pool.members.values()
    assert first.win_rate == 0.5
    pool.record([game(index, first.name, reward) for index, reward in enumerate([1.0, 0.0, -1.0, 1.0])])
    assert first.win_rate == pytest.approx((1 * 0.99**3 + 0.5 * 0.99**2 + 1 + 0.5) / (1 + 0.99 + 0.99**2 + 0.99**3 + 1))
    assert second.win_rate == 0.5
    pool.record([game(index, first.name, -1.0) for index in range(1000)])
    assert 0 < first.win_rate < 0.01, "it forgets, and is never 0"
    pool.record([game(1, "step_000099", 1.0)])  # has left since


def test_a_state_goes_through_json() -> None:
    pool = filled(9, size=4, sample="hard")
    pool.record([game(index, "step_000007", 1.0) for index in range(9)])
    again = Pool(size=4, sample="hard")
    again.load_state_dict(json.loads(json.dumps(pool.state_dict())))
    assert again == pool and again.state_dict() == pool.state_dict()
    assert not again.due(5)
