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


def points_of(results: Mapping[str, Any], run: str, batch: int) -> list[Point]:
    """The checkpoints of one run in the order of their steps.

    Args:
        results: ``results.json`` of its evaluation, in which the run's checkpoints are ``<run>/step_<number>``.
        run: what it is called there.
        batch: games of a step.
    """
    measures: dict[int, dict[str, float]] = {}

    def of(policy: str) -> dict[str, float] | None:
        name, _, number = policy.rpartition("/step_")
        return measures.setdefault(int(number), {}) if name == run and number.isdigit() else None

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
    for policy, scores in results["benchmarks"].items():
        if (found := of(policy)) is not None:
            for one in scores:
                place = one["benchmark"]
                found |= {f"{place}: avg": one["avg"]["value"], f"{place}: maj": one["maj"]["value"]}
                found |= {f"{place}: pass@{k}": rate["value"] for k, rate in one["pass_at"].items()}
    return [Point(step, step * batch, measures[step]) for step in sorted(measures)]


def average_policy(results: Mapping[str, Any], run: str) -> dict[str, float]:
    """NashConv of the average of all checkpoints of a run, by game; empty where it was not measured."""
    averages = [one for one in results["exploitability"] if one["policy"].startswith(f"{run}, average of ")]
    return {one["game"]: one["nash_conv"] for one in averages}
