"""The plot of an experiment on learning: the measures over the games that were played."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from experiments.learning_page import EXPERIMENTS, LANDMARKS, REFERENCE
from experiments.result import Result, arms, runs
from experiments.targets import running_mean
from experiments.text import COLOURS, figure
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV

_STYLES = ("-", "--", ":", "-.")


class _Panel(NamedTuple):
    """A panel: its measures, the arms shown (None: all), and the key that the horizontal axis shows."""

    title: str
    measures: Sequence[str]
    landmarks: Mapping[str, float] = {}
    smooth: bool = False
    arms: Sequence[str] | None = None
    over: str = "games"


def plot(result: Result) -> Any:
    """The share of won games where several games were learned; otherwise NashConv if measured, or how games ended.

    Thin lines are single runs; a thick line is the mean over the seeds of an arm. For NashConv, which goes up and down,
    the thick line is also a mean over the last games (``mean_over``).
    """
    names = list(next(runs(result))[2]["points"][0])
    trained_on = {game: by for game, by in _trained_on(result).items() if _wins(names, game)}
    if len(trained_on) > 1:
        # arms have played different numbers of games, but a step has the same number of games of each kind
        panels = [_Panel(f"{game}: won", _wins(names, game), arms=by, over="step") for game, by in trained_on.items()]
    elif NASH_CONV in names:
        panels = [
            _Panel(NASH_CONV, [NASH_CONV], LANDMARKS, smooth=True),
            *[_Panel(REFERENCE, [REFERENCE], LANDMARKS, smooth=True)] * (REFERENCE in names),
            _Panel("games ended by an illegal answer", ["illegal"], smooth=True),
        ]
    else:
        ends = {"won": ": win", "lost": ": loss", "ended by an illegal answer": ": invalid"}
        panels = [_Panel(title, [name for name in names if name.endswith(end)]) for title, end in ends.items()]
    drawn = figure(5.2 * len(panels), 3.8)
    for axes, panel in zip(drawn.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw(axes, panel, result)
    _legend(drawn)
    return drawn


def _trained_on(result: Result) -> dict[str, list[str]]:
    """By game the arms that were trained on it."""
    by_game: dict[str, list[str]] = {}
    for arm, seeds in result.figures["curves"].items():
        for game in next(iter(seeds.values())).get("trained_on", []):
            by_game.setdefault(game, []).append(arm)
    return by_game


def _wins(names: Sequence[str], game: str) -> list[str]:
    return [name for name in names if name.startswith(f"{game}, ") and name.endswith(": win")]


def _legend(drawn: Any) -> None:
    """A legend in each panel; where there are many lines and they are the same in all panels, one legend below."""
    legends = [axes.get_legend_handles_labels() for axes in drawn.axes]
    fullest = max(legends, key=lambda both: len(both[0]))
    alike = all(set(labels) <= set(fullest[1]) for _, labels in legends)
    if len(fullest[0]) > 3 and alike:
        drawn.legend(*fullest, loc="outside lower center", ncols=len(fullest[0]) // 2, fontsize=7)
        return
    for axes in drawn.axes:
        axes.legend(fontsize=7)


def _draw(axes: Any, panel: _Panel, result: Result) -> None:
    for name, height in panel.landmarks.items():
        axes.axhline(height, color="grey", linewidth=0.8, linestyle=":")
        axes.annotate(name, (1, height), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=7)
    several = len(arms(result)) > 1
    for number, arm in enumerate(arms(result)):
        if panel.arms is not None and arm not in panel.arms:
            continue
        curves = [run["points"] for name, _, run in runs(result) if name == arm]
        # where batches are turns, seeds have played different numbers of games
        games = [fmean(point[panel.over] for point in points) for points in zip(*curves, strict=True)]
        for i, measure in enumerate(panel.measures):
            if measure.endswith(": win") and not any(point[measure] for curve in curves for point in curve):
                continue  # nobody wins against a perfect player of some games
            colour = COLOURS[(number if several else i) % len(COLOURS)]
            for curve in curves:
                horizontal, vertical = ([point[key] for point in curve] for key in (panel.over, measure))
                axes.plot(horizontal, vertical, color=colour, alpha=0.3, linewidth=0.8)
            window = result.settings["mean_over"] if panel.smooth else 1
            means = [running_mean(curve, measure, window) for curve in curves]
            what = (measure.rpartition(": ")[0] or measure).removeprefix(f"{panel.title.partition(':')[0]}, ")
            label = ": ".join([arm] * several + [what] * (len(panel.measures) > 1)) or what
            style = _STYLES[i % len(_STYLES)] if several else "-"
            over_seeds = [fmean(values) for values in zip(*means, strict=True)]
            axes.plot(games, over_seeds, color=colour, linestyle=style, linewidth=1.8, label=label)
    axes.locator_params(axis="x", nbins=6)  # six long numbers do not touch
    axes.set_xlabel({"step": "steps"}.get(panel.over, panel.over))
    axes.set_title(panel.title, fontsize=10)
    axes.set_ylim(bottom=0)


PLOTS: dict[str, dict[str, Callable[[Result], Any]]] = {name: {name: plot} for name in EXPERIMENTS}
