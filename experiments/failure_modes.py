"""Looks in a run's curve for what goes wrong in self-play: illegal answers, a falling score, one role learned alone.

The end of a run hides what happened before, so each failure is shown where it was worst.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean

from experiments.result import Result
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV

Points = list[dict[str, float]]
#: A failure's measure at each point.
Measure = Callable[[Points], list[float]]
#: Whom the policy failed against.
ITSELF, OTHERS = "itself", "others"
RISE = "rise of NashConv"


def failures(result: Result) -> dict[tuple[str, str], dict[str, str]]:
    """The worst value of every failure in any seed, game and opponent, by arm and by ``ITSELF`` or ``OTHERS``.

    Where NashConv was measured, the failures are those of the policy against itself. Empty where nothing was measured.
    """
    found: dict[tuple[str, str], dict[str, float]] = {}
    for arm, seeds in result.figures["curves"].items():
        first = next(iter(seeds.values()))
        for name, against, measure in _failures(first["points"], first.get("trained_on")):
            worst = found.setdefault((arm, against), {})
            worst[name] = max(worst.get(name, 0.0), *(max(measure(run["points"])) for run in seeds.values()))
    return {
        key: {name: f"{value:.3f}" if name == RISE else f"{value:.1%}" for name, value in worst.items()}
        for key, worst in found.items()
    }


def _failures(points: Points, trained_on: Sequence[str] | None) -> Iterator[tuple[str, str, Measure]]:
    """Name, opponent and measure of each failure that these points can show."""
    if NASH_CONV in points[0]:
        yield "illegal answers", ITSELF, _illegal_in_play
        yield RISE, ITSELF, _rise
    for game, opponent in _opponents(points, trained_on):
        for name, measure in FAILURES.items():
            yield name, OTHERS, partial(measure, game, opponent)


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


#: Failures in games against an opponent, by name; docs/experiments/README.md explains them.
FAILURES: dict[str, Callable[[str, str, Points], list[float]]] = {
    "illegal answers": _illegal,
    "drop of the score": _fall,
    "one role behind": _imbalance,
}
