"""Metrics of a step's time: how fast it is, and what is neither playing nor training."""

from __future__ import annotations

from collections.abc import Mapping

from ..rollouts.channel import Played

#: What the workers of policy and critic count in a mini-batch: tokens of its turns, and positions that are computed.
TOKENS, POSITIONS = "tokens", "positions"
#: verl's timers of what is no overhead: playing, forward and backward passes, and the sync of weights.
WORK = ("gen", "old_log_prob", "ref", "values", "update_critic", "update_actor", "update_weights")


def speed_metrics(metrics: dict[str, float], games: Played, seconds: Mapping[str, float]) -> dict[str, float]:
    """``perf/...`` of a step: games per second; the share of the step that is neither playing, forward, backward, nor
    the sync of weights; the share of the update's positions that are padding.

    Of the step's ``metrics``, verl's among them, what the workers counted is taken out. ``seconds`` are verl's timers.
    """
    step = seconds["step"]
    speed = {
        "perf/games_per_second": len(games.records) / step,
        "perf/overhead": 1 - sum(seconds.get(name, 0.0) for name in WORK) / step,
    }
    counted = {name: metrics.pop(f"{part}/{name}", 0.0) for part in ("critic", "actor") for name in (TOKENS, POSITIONS)}
    if counted[POSITIONS]:
        speed["perf/update/padding"] = 1 - counted[TOKENS] / counted[POSITIONS]
    return speed
