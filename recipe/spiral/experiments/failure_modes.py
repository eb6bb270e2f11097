"""What goes wrong in self-play, looked for in a run's curve: the form lost, a fall back, one role alone learned.

A run's end hides what happened on its way; each failure is therefore shown at its worst point as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from statistics import fmean

from .result import Result
from .text import table

Curve = list[dict[str, float]]
#: Of every failure: what it is called, how it is measured, and the measure at each point of a curve.
Failure = tuple[str, str, Callable[[Curve, str, str], list[float]]]


def failures(result: Result) -> str:
    """A table of every run's failures, each at the start, at its worst and at the end; empty where no games were."""
    lines = []
    for arm, seeds in result.figures["curves"].items():
        for seed, run in seeds.items():
            curve: Curve = run["points"]
            for game, opponent in _against(curve, run.get("trained_on")):
                for name, _, measure in FAILURES:
                    values = measure(curve, game, opponent)
                    worst = max(range(len(values)), key=lambda at: values[at])
                    shown = [f"{value:.1%}" for value in (values[0], values[worst], values[-1])]
                    at = f"{curve[worst]['games']:,}"
                    lines.append([arm, seed, f"{game}, {opponent}", name, shown[0], shown[1], at, shown[2]])
    if not lines:
        return ""
    header = ["arm", "seed", "game and opponent", "failure", "at the start", "at worst", "after games", "at the end"]
    notes = [f"{name.capitalize()}: {how}." for name, how, _ in FAILURES]
    return "\n\n".join(
        [table(header, lines), *notes, "Some percent of each are the chance of the games that were played."]
    )


def _against(curve: Curve, trained_on: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Game and opponent of what was measured in both roles, of the games that were trained on."""
    for name in curve[0]:
        place, _, outcome = name.rpartition(": ")
        parts = place.split(", ")
        if outcome != "win" or len(parts) != 3 or parts[1] != "player 0":
            continue
        if trained_on is None or parts[0] in trained_on:
            yield parts[0], parts[2]


def _illegal(curve: Curve, game: str, opponent: str) -> list[float]:
    return [max(_shares(point, game, opponent, "invalid")) for point in curve]


def _fall(curve: Curve, game: str, opponent: str) -> list[float]:
    scores = [fmean(_scores(point, game, opponent)) for point in curve]
    return [best - score for best, score in zip(accumulate(scores, max), scores, strict=True)]


def _imbalance(curve: Curve, game: str, opponent: str) -> list[float]:
    leads = [first - second for first, second in (_scores(point, game, opponent) for point in curve)]
    return [abs(lead - leads[0]) for lead in leads]


def _scores(point: dict[str, float], game: str, opponent: str) -> list[float]:
    """By role, wins and half of the draws."""
    won, drawn = (_shares(point, game, opponent, outcome) for outcome in ("win", "draw"))
    return [win + draw / 2 for win, draw in zip(won, drawn, strict=True)]


def _shares(point: dict[str, float], game: str, opponent: str, outcome: str) -> list[float]:
    return [point[f"{game}, player {role}, {opponent}: {outcome}"] for role in (0, 1)]


FAILURES: tuple[Failure, ...] = (
    ("form lost", "the share of games that an illegal answer ended, in the role with more of them", _illegal),
    (
        "fallen back",
        "how far wins and half of the draws, as the mean of both roles, are below their best so far",
        _fall,
    ),
    (
        "one role behind",
        "by how much the roles' difference in wins and half of the draws is another than at the start, where it is the "
        "game's own",
        _imbalance,
    ),
)
