"""Metrics of a step's time, from verl's timers and what the workers counted."""

from __future__ import annotations

import pytest

from recipe.spiral.rollouts.channel import Played
from recipe.spiral.training.speed import speed_metrics
from tests.made import record

SECONDS = {"step": 10.0, "gen": 4.0, "old_log_prob": 1.0, "update_actor": 3.0, "update_weights": 0.5, "adv": 0.2}


def test_a_steps_time() -> None:
    """What the workers counted is not logged twice."""
    games = Played([record(index) for index in range(20)], [])
    metrics = {"actor/tokens": 90.0, "actor/positions": 100.0, "critic/tokens": 1.0, "critic/positions": 100.0}
    assert speed_metrics(metrics, games, SECONDS) == {
        "perf/games_per_second": 2.0,
        "perf/overhead": pytest.approx(0.15),
        "perf/update/padding": pytest.approx(0.1),
    }
    assert not metrics
    assert speed_metrics({}, games, {"step": 10.0}) == {"perf/games_per_second": 2.0, "perf/overhead": 1.0}
