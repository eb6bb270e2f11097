"""Looks in a run's curve for what goes wrong in self-play: illegal answers, a falling score, one role learned alone.

The end of a run hides what happened before, so each failure is also shown where it was worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean

from experiments.result import Result
from experiments.text import bullets, table
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV

Points = list[dict[str, float]]
#: A failure's measure at each point.
Measure = Callable[[Points], list[float]]


def failures(result: Result) -> str:
    """A table of every arm's failures: at the start, at its worst and at the end, in the seed where it was worst.

    Where NashConv was measured, the failures are those of the policy against itself, otherwise those of the measured
    games. Empty where there is neither.
    """
    lines = []
    explanations: dict[str, str] = {}
    for arm, seeds in result.figures["curves"].items():
        points: dict[str, Points] = {seed: run["points"] for seed, run in seeds.items()}
        first = next(iter(seeds.values()))
        for name, explanation, place, form, measure in _failures(first["points"], first.get("trained_on")):
            by_seed = {seed: measure(curve) for seed, curve in points.items()}
            seed = max(by_seed, key=lambda seed: max(by_seed[seed]))
            values = by_seed[seed]
            worst = max(range(len(values)), key=values.__getitem__)
            start, at_worst, end = (format(value, form) for value in (values[0], values[worst], values[-1]))
            lines.append([arm, place, name, seed, start, at_worst, f"{points[seed][worst]['games']:,}", end])
            explanations[name] = explanation
    if not lines:
        return ""
    header = ["arm", "game and opponent", "failure", "seed", "at the start", "at worst", "after games", "at the end"]
    notes = [f"{name[0].upper()}{name[1:]}: {explanation}." for name, explanation in explanations.items()]
    if len(result.seeds) > 1:
        notes.append("Each row shows the seed in which the failure was worst.")
    if any(interval for seeds in result.figures["curves"].values() for interval in _intervals(seeds)):
        notes.append("The shares come from a few hundred games, so the randomness of these games makes some percent.")
    return f"{table(header, lines)}\n\n{bullets(notes)}"


def _intervals(seeds: dict[str, dict[str, list[dict[str, float]]]]) -> Iterator[dict[str, float]]:
    for run in seeds.values():
        yield from run.get("intervals", [])


def _failures(points: Points, trained_on: Sequence[str] | None) -> Iterator[tuple[str, str, str, str, Measure]]:
    """Name, explanation, place, format and measure of each failure that these points can show."""
    if NASH_CONV in points[0]:
        place = ", ".join([*(trained_on or []), "itself"])
        yield "illegal answers", "the share of games that an illegal answer ends", place, ".1%", _illegal_in_play
        yield "rise of NashConv", "how far NashConv is above its lowest value so far", place, ".3f", _rise
    for game, opponent in _opponents(points, trained_on):
        for name, explanation, measure in FAILURES:
            yield name, explanation, f"{game}, {opponent}", ".1%", partial(measure, game, opponent)


def _opponents(points: Points, trained_on: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Game and opponent of the games that were trained on and measured in both roles."""
    for name in points[0]:
        place, _, outcome = name.rpartition(": ")
        words = place.split(", ")
        if outcome != "win" or len(words) != 3 or words[1] != "player 0":
            continue
        if trained_on is None or words[0] in trained_on:
            yield words[0], words[2]


def _illegal_in_play(points: Points) -> list[float]:
    return [point["illegal"] for point in points]


def _rise(points: Points) -> list[float]:
    distances = [point[NASH_CONV] for point in points]
    return [distance - best for best, distance in zip(accumulate(distances, min), distances, strict=True)]


def _illegal(game: str, opponent: str, points: Points) -> list[float]:
    return [max(_shares(point, game, opponent, "invalid")) for point in points]


def _fall(game: str, opponent: str, points: Points) -> list[float]:
    scores = [fmean(_scores(point, game, opponent)) for point in points]
    return [best - score for best, score in zip(accumulate(scores, max), scores, strict=True)]


def _imbalance(game: str, opponent: str, points: Points) -> list[float]:
    leads = [first - second for first, second in (_scores(point, game, opponent) for point in points)]
    return [abs(lead - leads[0]) for lead in leads]


def _scores(point: dict[str, float], game: str, opponent: str) -> list[float]:
    """Each role's wins plus half of its draws."""
    won, drawn = (_shares(point, game, opponent, outcome) for outcome in ("win", "draw"))
    return [win + draw / 2 for win, draw in zip(won, drawn, strict=True)]


def _shares(point: dict[str, float], game: str, opponent: str, outcome: str) -> list[float]:
    return [point[f"{game}, player {role}, {opponent}: {outcome}"] for role in (0, 1)]


#: Failures in games against an opponent: name, explanation and measure.
FAILURES: tuple[tuple[str, str, Callable[[str, str, Points], list[float]]], ...] = (
    ("illegal answers", "the share of games that an illegal answer ends, in the role with the larger share", _illegal),
    (
        "drop of the score",
        "how far the score is below its highest value so far; the score is wins plus half of the draws, as the mean of "
        "both roles",
        _fall,
    ),
    (
        "one role behind",
        "how far the difference between the two roles' scores has moved from its value at the start",
        _imbalance,
    ),
)
