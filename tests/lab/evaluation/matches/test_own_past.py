"""Snapshots against the run's own past: who plays whom, and for whom it is counted."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.lab.evaluation.matches.matchups import MatchUp, Plan, own_past
from recipe.spiral.lab.evaluation.ratings.games_summary import summarise
from recipe.spiral.lab.evaluation.ratings.statistics import Rate, Result
from tests.lab.evaluation.made import Outcome, game_of, plan

STEPS = {"s8": 8, "s40": 40, "s24": 24, "s16": 16}


def counted(games: Plan, lag: int, steps: dict[str, int], winner: str | None = None) -> list[Result]:
    outcomes: list[Outcome] = ["win" if winner in (None, game.id.policy) else "loss" for game in games]
    return [*summarise(map(game_of, games, outcomes), lag=lag, steps=steps).own_past]


def test_each_snapshot_plays_the_one_a_lag_before() -> None:
    assert own_past(STEPS, ["Nim"], 16) == (MatchUp("s24", "s8", "Nim"), MatchUp("s40", "s24", "Nim"))
    with pytest.raises(ValueError, match=r"lag=5: .*8, 16, 24, 40"):
        own_past(STEPS, ["Nim"], 5)


def test_the_own_past_is_counted_from_the_later_side() -> None:
    """Whichever was "the policy": here once the later one, once the earlier."""
    pairs = [("s24", "s8"), ("s8", "s24"), ("s24", "s16"), ("s24", "random")]
    games = plan(2, *((policy, opponent, "Nim") for policy, opponent in pairs))
    past = {(result.policy, result.opponent, result.role): result for result in counted(games, 16, STEPS, "s24")}
    assert set(past) == {("s24", "s8", role) for role in (0, 1, None)}
    assert past["s24", "s8", None].win == Rate(8, 8)
    assert past["s24", "s8", 0].win == Rate(4, 4)
    assert {result.opponent for result in counted(games, 8, STEPS)} == {"s16"}


def test_the_own_past_is_in_the_order_of_steps() -> None:
    numbers = random.Random(0).sample([8, 24, 40, 104], 4)
    steps = {f"s{number - lag}": number - lag for number in numbers for lag in (0, 8)}
    games = plan(1, *((f"s{number}", f"s{number - 8}", "Nim") for number in numbers))
    rows = [result.policy for result in counted(games, 8, steps) if result.role is None]
    assert rows == [f"s{number}" for number in sorted(numbers)]
