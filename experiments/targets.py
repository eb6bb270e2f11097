"""The targets of an experiment, and what each of its runs reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from experiments.result import Result, arms, runs
from experiments.text import table

#: What a target is judged by: the last point, the mean of the points in the last games, or the worst such mean so far.
OF = ("last", "mean", "worst mean")

Points = Sequence[Mapping[str, float]]


def targets_table(result: Result) -> str:
    """A table of every target and arm: what each seed measured, and the verdict. Empty where there are no targets."""
    lines = []
    for target in result.settings["targets"]:
        limit = f"at most {target['at_most']:g}" if "at_most" in target else f"at least {target['at_least']:g}"
        of = "" if target["of"] == "last" else f", {target['of']}"
        cells = [f"{target['measure']}{of}: {limit} after {target['games']:,} games"]
        for _, of_arm in groupby(runs(result), key=lambda run: run[0]):
            judged = [_judged(run["points"], target, result.settings["mean_over"]) for _, _, run in of_arm]
            verdicts = Counter(verdict for _, verdict in judged)
            alone = len(verdicts) == 1
            in_words = ", ".join(verdict if alone else f"{n} {verdict}" for verdict, n in verdicts.items())
            cells.append(f"{', '.join(value for value, _ in judged if value)} {in_words}".strip())
        lines.append(cells)
    return table(["target", *arms(result)], lines) if lines else ""


def _judged(points: Points, target: Mapping[str, Any], mean_over: int) -> tuple[str, str]:
    """The value of one run, and the verdict."""
    if target["measure"] not in points[-1]:
        return "", "not measured"
    if (value := value_at(points, target, mean_over)) is not None:
        return f"{value:.3f}", "reached" if reached(value, target) else "missed"
    if target["of"] != "worst mean":  # more games can only make it worse
        so_far = _value_until(points, target, points[-1]["games"], mean_over)
        if reached(so_far, target):
            return f"{so_far:.3f}", "reached earlier; run too short"
    return "", "run too short"


def value_at(points: Points, target: Mapping[str, Any], mean_over: int) -> float | None:
    """The value of a run at a target's number of games; None if the run was shorter.

    Args:
        points: the run's.
        target: with ``measure``, ``games`` and ``of``.
        mean_over: games of the running mean.
    """
    last = points[-1]["games"]
    between = last - points[-2]["games"] if len(points) > 1 else 0
    if last < target["games"] and last + between <= target["games"]:
        return None
    return _value_until(points, target, target["games"], mean_over)


def _value_until(points: Points, target: Mapping[str, Any], games: float, mean_over: int) -> float:
    until, name = _until(points, games), target["measure"]
    if target["of"] == "last":
        return until[-1][name]
    means = running_mean(until, name, mean_over)
    if target["of"] == "mean":
        return means[-1]
    # the first means are over fewer games, so a single point weighs more in them
    whole = [mean for mean, point in zip(means, until, strict=True) if point["games"] >= mean_over] or means
    return max(whole) if "at_most" in target else min(whole)


def _until(points: Points, games: float) -> Points:
    return [point for point in points if point["games"] <= games]


def reached(value: float, target: Mapping[str, Any]) -> bool:
    return bool(value <= target["at_most"] if "at_most" in target else value >= target["at_least"])


def running_mean(points: Points, name: str, mean_over: int) -> list[float]:
    """At each point the mean over the points of the last ``mean_over`` games."""
    return [
        fmean(other[name] for other in points if point["games"] - mean_over < other["games"] <= point["games"])
        for point in points
    ]
