"""Metrics of a step's time: how fast it is, and what is neither playing nor training."""

from __future__ import annotations

from collections.abc import Mapping

#: verl's timers of what is no overhead: playing, forward and backward passes, and the sync of weights.
WORK = ("gen", "old_log_prob", "ref", "values", "update_critic", "update_actor", "update_weights")


def speed_metrics(games: int, seconds: Mapping[str, float]) -> dict[str, float]:
    """``perf/...`` of a step: games per second, and the share of the step that is neither playing, forward, backward,
    nor the sync of weights. ``seconds`` are verl's timers."""
    step = seconds["step"]
    worked = sum(seconds.get(name, 0.0) for name in WORK)
    return {"perf/games_per_second": games / step, "perf/overhead": 1 - worked / step}
