"""A run's checkpoints as points of curves, from an evaluation's ``results.json``: with their games and intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recipe.spiral.lab.evaluation.outputs.points import OUTCOMES, match_up, measures_by_step, rows_of


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
    """The checkpoints of one run in the order of their steps; ``games``: how many were played until a step's end."""
    found = measures_by_step(results, run)
    points = {step: Point(step, games(step), measures) for step, measures in found.items()}
    for kind, step, row in rows_of(results, run):
        for outcome in OUTCOMES if kind == "results" else ():
            if "low" in (share := row[outcome]):
                points[step].intervals[f"{match_up(row)}: {outcome}"] = share["low"], share["high"]
    return list(points.values())


def average_policy(results: Mapping[str, Any], run: str) -> dict[str, float]:
    """NashConv of the average of all checkpoints of a run, by game; empty where it was not measured."""
    rows = [row for row in results["exploitability"] if row["policy"].startswith(f"{run}, average of ")]
    return {row["game"]: row["nash_conv"] for row in rows}
