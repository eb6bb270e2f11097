"""Metrics of a step's time, from verl's timers."""

from __future__ import annotations

import pytest

from recipe.spiral.training.speed import speed_metrics


def test_a_steps_time() -> None:
    seconds = {"step": 10.0, "gen": 4.0, "old_log_prob": 1.0, "update_actor": 3.0, "update_weights": 0.5, "adv": 0.2}
    assert speed_metrics(20, seconds) == {"perf/games_per_second": 2.0, "perf/overhead": pytest.approx(0.15)}
