"""What an experiment was to reach, and what each of its runs came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from statistics import fmean
from typing import Any

from experiments.result import Result, curves
from experiments.text import span, table

#: What a target is judged by: the last point, the mean of those in the last games, or that mean where it was worst.
OF = ("last", "mean", "worst mean")

Curve = Sequence[Mapping[str, float]]


def aims(result: Result) -> str:
    """A table of every aim, by arm: what each seed came to. Empty where there are none."""
    lines = []
    for target in result.settings["targets"]:
        limit = f"at most {target['at_most']:g}" if "at_most" in target else f"at least {target['at_least']:g}"
        aim = [target["measure"], target["of"], f"{target['games']:,}", limit]
        for arm, grouped in groupby(curves(result), key=lambda one: one[0]):
            told = [_judged(curve, target, result.settings["mean_over"]) for _, _, curve in grouped]
            verdicts = Counter(verdict for _, _, verdict in told)
            alone = verdicts.total() == 1
            in_words = [
                verdict if alone else f"{verdict}: {n} of {verdicts.total()}" for verdict, n in verdicts.items()
            ]
            at = [games for _, games, _ in told if games is not None]
            measured = ", ".join(value for value, _, _ in told)
            lines.append([*aim, arm, measured, span(at) if at else "-", ", ".join(in_words)])
    if not lines:
        return ""
    notes = ["Measured at the last point up to that many games."]
    if any(target["of"] == "worst mean" for target in result.settings["targets"]):
        notes.append("Worst mean: the mean of the last games, where it was worst up to then.")
    if len(result.seeds) > 1:
        notes.append(f"One figure for each of the seeds {', '.join(map(str, result.seeds))}.")
    header = ["measure", "of", "by games", "aim", "arm", "measured", "at games", ""]
    return f"{table(header, lines)}\n\n{' '.join(notes)}"


def _judged(curve: Curve, target: Mapping[str, Any], mean_over: int) -> tuple[str, int | None, str]:
    """What one run came to of an aim, at how many games, and what that is."""
    if target["measure"] not in curve[-1]:
        return "-", None, "was not measured"
    if (value := value_at(curve, target, mean_over)) is not None:
        verdict = "reached" if reached(value, target) else "missed"
        return f"{value:.3f}", int(_until(curve, target["games"])[-1]["games"]), verdict
    last = curve[-1]["games"]
    if target["of"] == "worst mean":  # it can only get worse
        return "-", None, "not run so far"
    so_far = _value_until(curve, target, last, mean_over)
    if reached(so_far, target):
        return f"{so_far:.3f}", int(last), "reached before, and not run so far"
    return "-", None, "not run so far"


def value_at(curve: Curve, target: Mapping[str, Any], mean_over: int) -> float | None:
    """What a run had come to by a target's number of games; None if it was not run that far.

    Args:
        curve: a run's points.
        mean_over: games of the running mean.
    """
    last = curve[-1]["games"]
    interval = last - curve[-2]["games"] if len(curve) > 1 else 0
    if last < target["games"] and last + interval <= target["games"]:
        return None
    return _value_until(curve, target, target["games"], mean_over)


def _value_until(curve: Curve, target: Mapping[str, Any], games: float, mean_over: int) -> float:
    until, name = _until(curve, games), target["measure"]
    if target["of"] == "last":
        return until[-1][name]
    means = running_mean(until, name, mean_over)
    if target["of"] == "mean":
        return means[-1]
    # those of the first games are means of less, in which one point counts for more
    whole = [mean for mean, point in zip(means, until, strict=True) if point["games"] >= mean_over] or means
    return max(whole) if "at_most" in target else min(whole)


def _until(curve: Curve, games: float) -> Curve:
    return [point for point in curve if point["games"] <= games]


def reached(value: float, target: Mapping[str, Any]) -> bool:
    return bool(value <= target["at_most"] if "at_most" in target else value >= target["at_least"])


def running_mean(curve: Curve, name: str, mean_over: int) -> list[float]:
    """At each point the mean of those in the ``mean_over`` games up to it."""
    return [
        fmean(one[name] for one in curve if point["games"] - mean_over < one["games"] <= point["games"])
        for point in curve
    ]
