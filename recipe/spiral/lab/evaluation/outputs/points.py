"""The measures of a run's checkpoints, taken from an evaluation's ``results.json``, as points of curves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NASH_CONV = "NashConv"
#: The fields of ``results.json``'s exploitability that a point has, and their names there.
_EXPLOITABILITY = {"nash_conv": NASH_CONV, "nash_conv_as_judged": "NashConv as judged", "illegal_in_play": "illegal"}
WORST = "illegal, worst"
#: The outcomes of games for the policy; "invalid": it ended the game by an answer that was no legal action.
OUTCOMES = ("win", "draw", "loss", "invalid")
#: In the names of measures of the policy that always gives its likeliest legal answer.
AT_ZERO = " at temperature 0"


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
    points: dict[int, Point] = {}
    several = len({row["game"] for row in results["exploitability"]}) > 1
    for kind, step, row in rows_of(results, run):
        point = points.setdefault(step, Point(step, games(step), {}))
        if kind == "exploitability":
            place = f"{row['game']}, " if several else ""
            point.measures.update({f"{place}{name}": value for name, value in measures_of(row).items()})
        elif kind == "optimality":
            point.measures.update({f"{row['game']}, optimal moves": row["all"]["share"], **row.get("results", {})})
        elif kind == "results":
            place = f"{row['game']}, player {row['role']}, {row['opponent']}"
            shares = {f"{place}: {outcome}": row[outcome] for outcome in OUTCOMES}
            point.measures.update({name: share["value"] for name, share in shares.items()})
            limits = {name: (share["low"], share["high"]) for name, share in shares.items() if "low" in share}
            point.intervals.update(limits)
        else:
            rates = {"avg": row["avg"], "maj": row["maj"], **{f"pass@{k}": rate for k, rate in row["pass_at"].items()}}
            point.measures.update({f"{row['benchmark']}: {name}": rate["value"] for name, rate in rates.items()})
    return [points[step] for step in sorted(points)]


def rows_of(results: Mapping[str, Any], run: str) -> Iterator[tuple[str, int, Mapping[str, Any]]]:
    """What ``results.json`` has of one run's checkpoints: each row's kind, its checkpoint's step, and the row. Of games
    those of a single role."""
    tables = {kind: results[kind] for kind in ("exploitability", "optimality", "results")}
    scores = [{**score, "policy": policy} for policy, rows in results["benchmarks"].items() for score in rows]
    for kind, rows in {**tables, "benchmarks": scores}.items():
        for row in rows:
            name, _, number = row["policy"].rpartition("/step_")
            if name == run and number.isdigit() and row.get("role", 0) is not None:
                yield kind, int(number), row


def measures_of(exploitability: Mapping[str, Any]) -> dict[str, float]:
    """The measures in an ``Exploitability``, given as a dict."""
    taken = {name: float(exploitability[key]) for key, name in _EXPLOITABILITY.items()}
    return {**taken, WORST: float(exploitability["illegal"][1])}


def average_policy(results: Mapping[str, Any], run: str) -> dict[str, float]:
    """NashConv of the average of all checkpoints of a run, by game; empty where it was not measured."""
    rows = [row for row in results["exploitability"] if row["policy"].startswith(f"{run}, average of ")]
    return {row["game"]: row["nash_conv"] for row in rows}
