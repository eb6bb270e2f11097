"""What an evaluation measured of each checkpoint of a run, as points of curves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

#: Of ``results.json``'s exploitability, what a point takes, and what it is called there.
_EXPLOITABILITY = {"nash_conv": "NashConv", "nash_conv_as_judged": "NashConv as judged", "illegal_in_play": "illegal"}
WORST = "illegal, worst"


@dataclass(frozen=True)
class Point:
    """A checkpoint.

    Attributes:
        step: of training.
        games: played in training until then.
        measures: by name; all points of a run have the same.
    """

    step: int
    games: int
    measures: dict[str, float]


def points_of(results: Mapping[str, Any], batch: int) -> list[Point]:
    """The checkpoints of one run in the order of their steps.

    Args:
        results: ``results.json`` of its evaluation, in which the run's checkpoints are ``<run>/step_<number>``.
        batch: games of a step.

    Raises:
        ValueError: nothing in it is about a checkpoint.
    """
    measures: dict[int, dict[str, float]] = {}

    def of(policy: str) -> dict[str, float] | None:
        step = _step(policy)
        return None if step is None else measures.setdefault(step, {})

    several = len({one["game"] for one in results["exploitability"]}) > 1
    for one in results["exploitability"]:
        if (found := of(one["policy"])) is not None:
            place = f"{one['game']}, " if several else ""
            found |= {f"{place}{name}": one[key] for key, name in _EXPLOITABILITY.items()}
            found[f"{place}{WORST}"] = one["illegal"][1]
    for one in results["optimality"]:
        if (found := of(one["policy"])) is not None:
            found[f"{one['game']}, optimal moves"] = one["all"]["share"]
    for one in results["results"]:
        if one["role"] is not None and (found := of(one["policy"])) is not None:
            place = f"{one['game']}, player {one['role']}, {one['opponent']}"
            found |= {f"{place}: {outcome}": one[outcome]["value"] for outcome in ("win", "draw", "loss", "invalid")}
    if not measures:
        raise ValueError("the evaluation measured no checkpoint")
    return [Point(step, step * batch, measures[step]) for step in sorted(measures)]


def average_policy(results: Mapping[str, Any]) -> dict[str, float]:
    """NashConv of the average of all checkpoints, by game; empty where it was not measured."""
    return {
        one["game"]: one["nash_conv"]
        for one in results["exploitability"]
        if ", average of " in one["policy"] and _step(one["policy"]) is None
    }


def _step(policy: str) -> int | None:
    name, mark, number = policy.rpartition("/step_")
    return int(number) if mark and name and number.isdigit() else None
