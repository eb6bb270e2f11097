"""What goes wrong in self-play, looked for in a run's curve: the form lost, a fall back, one role alone learned.

A run's end hides what happened on its way; each failure is therefore shown at its worst point as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from statistics import fmean

from experiments.result import Result
from experiments.text import table
from recipe.spiral.evaluation.report.points import NASH_CONV

Curve = list[dict[str, float]]
#: Of every failure: what it is called, how it is measured, and the measure at each point of a curve.
Failure = tuple[str, str, Callable[[str, str, Curve], list[float]]]


def failures(result: Result) -> str:
    """A table of every arm's failures, each at the start, at its worst and at the end of the seed that has the worst.

    Where NashConv was measured, of the policy against itself; otherwise of its games. Empty where neither was.
    """
    lines = []
    met: dict[str, str] = {}
    for arm, seeds in result.figures["curves"].items():
        curves: dict[str, Curve] = {seed: run["points"] for seed, run in seeds.items()}
        first = next(iter(seeds.values()))
        for name, how, place, form, measure in _looked_for(first["points"], first.get("trained_on")):
            found = {seed: measure(curve) for seed, curve in curves.items()}
            seed = max(found, key=lambda one: max(found[one]))
            values = found[seed]
            worst = max(range(len(values)), key=lambda at: values[at])
            shown = [format(value, form) for value in (values[0], values[worst], values[-1])]
            at = f"{curves[seed][worst]['games']:,}"
            lines.append([arm, place, name, seed, shown[0], shown[1], at, shown[2]])
            met[name] = how
    if not lines:
        return ""
    header = ["arm", "game and opponent", "failure", "seed", "at the start", "at worst", "after games", "at the end"]
    notes = [f"{name.capitalize()}: {how}." for name, how in met.items()]
    if len(result.seeds) > 1:
        notes.append("Of the seed in which it was worst.")
    if any(
        interval
        for seeds in result.figures["curves"].values()
        for run in seeds.values()
        for interval in run.get("intervals", [])
    ):
        notes.append("Some percent of each are the chance of the games that were played.")
    return "\n\n".join([table(header, lines), *notes])


def _looked_for(
    curve: Curve, trained_on: Sequence[str] | None
) -> Iterator[tuple[str, str, str, str, Callable[[Curve], list[float]]]]:
    """Name, explanation, place, format, and measure at each point."""
    if NASH_CONV in curve[0]:
        for name, how, form, of_itself in OF_ITSELF:
            yield name, how, ", ".join([*(trained_on or []), "itself"]), form, of_itself
    for game, opponent in _against(curve, trained_on):
        for name, how, measure in FAILURES:
            yield name, how, f"{game}, {opponent}", ".1%", partial(measure, game, opponent)


def _against(curve: Curve, trained_on: Sequence[str] | None) -> Iterator[tuple[str, str]]:
    """Game and opponent of what was measured in both roles, of the games that were trained on."""
    for name in curve[0]:
        place, _, outcome = name.rpartition(": ")
        parts = place.split(", ")
        if outcome != "win" or len(parts) != 3 or parts[1] != "player 0":
            continue
        if trained_on is None or parts[0] in trained_on:
            yield parts[0], parts[2]


def _illegal(game: str, opponent: str, curve: Curve) -> list[float]:
    return [max(_shares(point, game, opponent, "invalid")) for point in curve]


def _fall(game: str, opponent: str, curve: Curve) -> list[float]:
    scores = [fmean(_scores(point, game, opponent)) for point in curve]
    return [best - score for best, score in zip(accumulate(scores, max), scores, strict=True)]


def _imbalance(game: str, opponent: str, curve: Curve) -> list[float]:
    leads = [first - second for first, second in (_scores(point, game, opponent) for point in curve)]
    return [abs(lead - leads[0]) for lead in leads]


def _scores(point: dict[str, float], game: str, opponent: str) -> list[float]:
    """By role, wins and half of the draws."""
    won, drawn = (_shares(point, game, opponent, outcome) for outcome in ("win", "draw"))
    return [win + draw / 2 for win, draw in zip(won, drawn, strict=True)]


def _shares(point: dict[str, float], game: str, opponent: str, outcome: str) -> list[float]:
    return [point[f"{game}, player {role}, {opponent}: {outcome}"] for role in (0, 1)]


def _form_lost(curve: Curve) -> list[float]:
    return [point["illegal"] for point in curve]


def _farther(curve: Curve) -> list[float]:
    distances = [point[NASH_CONV] for point in curve]
    return [distance - best for best, distance in zip(accumulate(distances, min), distances, strict=True)]


#: Of a policy that plays itself: name, explanation, format and measure.
OF_ITSELF: tuple[tuple[str, str, str, Callable[[Curve], list[float]]], ...] = (
    ("form lost", "the share of games that an illegal answer ends", ".1%", _form_lost),
    ("fallen back", "how far NashConv is above its lowest so far", ".3f", _farther),
)
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
