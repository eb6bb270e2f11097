"""The measures of a run's checkpoints, taken from an evaluation's ``results.json``, as points of curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

NASH_CONV = "NashConv"
#: The fields of ``results.json``'s exploitability that a point has, and their names there.
_EXPLOITABILITY = {"nash_conv": NASH_CONV, "nash_conv_as_judged": "NashConv as judged", "illegal_in_play": "illegal"}
WORST = "illegal, worst"
#: The outcomes of games for the policy; "invalid": it ended the game by an answer that was no legal action.
OUTCOMES = ("win", "draw", "loss", "invalid")


@dataclass(frozen=True)
class Point:
    """A checkpoint.

    Attributes:
        step: of training.
        games: the number of games that it was trained on.
        measures: by name.
        intervals: the 95% intervals of the measures that are shares of games.
    """

    step: int
    games: int
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


def points_of(results: Mapping[str, Any], run: str, games: Callable[[int], int]) -> list[Point]:
    """The checkpoints of one run in the order of their steps.

    Args:
        results: ``results.json`` of its evaluation, in which the run's checkpoints are ``<run>/step_<number>``.
        run: the run's name there.
        games: the number of games that were played until the end of a step.
    """
    measures: dict[int, dict[str, float]] = {}
    intervals: dict[str, dict[str, tuple[float, float]]] = {}

    def of(policy: str) -> dict[str, float] | None:
        name, _, number = policy.rpartition("/step_")
        return measures.setdefault(int(number), {}) if name == run and number.isdigit() else None

    several = len({one["game"] for one in results["exploitability"]}) > 1
    for one in results["exploitability"]:
        if (found := of(one["policy"])) is not None:
            place = f"{one['game']}, " if several else ""
            found |= {f"{place}{name}": value for name, value in measures_of(one).items()}
    for one in results["optimality"]:
        if (found := of(one["policy"])) is not None:
            found[f"{one['game']}, optimal moves"] = one["all"]["share"]
    for one in results["results"]:
        if one["role"] is not None and (found := of(one["policy"])) is not None:
            place = f"{one['game']}, player {one['role']}, {one['opponent']}"
            shares = {f"{place}: {outcome}": one[outcome] for outcome in OUTCOMES}
            found |= {name: share["value"] for name, share in shares.items()}
            limits = {name: (share["low"], share["high"]) for name, share in shares.items() if "low" in share}
            intervals.setdefault(one["policy"], {}).update(limits)
    for policy, scores in results["benchmarks"].items():
        if (found := of(policy)) is not None:
            for one in scores:
                place = one["benchmark"]
                found |= {f"{place}: avg": one["avg"]["value"], f"{place}: maj": one["maj"]["value"]}
                found |= {f"{place}: pass@{k}": rate["value"] for k, rate in one["pass_at"].items()}
    names = {step: f"{run}/step_{step:06d}" for step in measures}
    return [Point(step, games(step), measures[step], intervals.get(names[step], {})) for step in sorted(measures)]


def measures_of(exploitability: Mapping[str, Any]) -> dict[str, float]:
    """The measures in an ``Exploitability``, given as a dict."""
    taken = {name: float(exploitability[key]) for key, name in _EXPLOITABILITY.items()}
    return {**taken, WORST: float(exploitability["illegal"][1])}


def average_policy(results: Mapping[str, Any], run: str) -> dict[str, float]:
    """NashConv of the average of all checkpoints of a run, by game; empty where it was not measured."""
    averages = [one for one in results["exploitability"] if one["policy"].startswith(f"{run}, average of ")]
    return {one["game"]: one["nash_conv"] for one in averages}
