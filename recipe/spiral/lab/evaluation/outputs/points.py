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
    """A checkpoint: its step, the number of games that it was trained on, and its measures by name.

    ``intervals`` are the 95% intervals of the measures that are shares of games.
    """

    step: int
    games: int
    measures: dict[str, float]
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


def points_of(results: Mapping[str, Any], run: str, games: Callable[[int], int]) -> list[Point]:
    """The checkpoints of one run, ``<run>/step_<number>`` in ``results.json``, in the order of their steps.

    ``games`` gives the number of games that were played until the end of a step.
    """
    measures: dict[int, dict[str, float]] = {}
    intervals: dict[str, dict[str, tuple[float, float]]] = {}

    def of(policy: str) -> dict[str, float] | None:
        name, _, number = policy.rpartition("/step_")
        return measures.setdefault(int(number), {}) if name == run and number.isdigit() else None

    several = len({row["game"] for row in results["exploitability"]}) > 1
    for row in results["exploitability"]:
        if (measured := of(row["policy"])) is not None:
            place = f"{row['game']}, " if several else ""
            measured |= {f"{place}{name}": value for name, value in measures_of(row).items()}
    for row in results["optimality"]:
        if (measured := of(row["policy"])) is not None:
            measured[f"{row['game']}, optimal moves"] = row["all"]["share"]
    for row in results["results"]:
        if row["role"] is not None and (measured := of(row["policy"])) is not None:
            place = f"{row['game']}, player {row['role']}, {row['opponent']}"
            shares = {f"{place}: {outcome}": row[outcome] for outcome in OUTCOMES}
            measured |= {name: share["value"] for name, share in shares.items()}
            limits = {name: (share["low"], share["high"]) for name, share in shares.items() if "low" in share}
            intervals.setdefault(row["policy"], {}).update(limits)
    for policy, scores in results["benchmarks"].items():
        if (measured := of(policy)) is not None:
            for score in scores:
                place = score["benchmark"]
                measured |= {f"{place}: avg": score["avg"]["value"], f"{place}: maj": score["maj"]["value"]}
                measured |= {f"{place}: pass@{k}": rate["value"] for k, rate in score["pass_at"].items()}
    names = {step: f"{run}/step_{step:06d}" for step in measures}
    return [Point(step, games(step), measures[step], intervals.get(names[step], {})) for step in sorted(measures)]


def measures_of(exploitability: Mapping[str, Any]) -> dict[str, float]:
    """The measures in an ``Exploitability``, given as a dict."""
    taken = {name: float(exploitability[key]) for key, name in _EXPLOITABILITY.items()}
    return {**taken, WORST: float(exploitability["illegal"][1])}


def average_policy(results: Mapping[str, Any], run: str) -> dict[str, float]:
    """NashConv of the average of all checkpoints of a run, by game; empty where it was not measured."""
    rows = [row for row in results["exploitability"] if row["policy"].startswith(f"{run}, average of ")]
    return {row["game"]: row["nash_conv"] for row in rows}
