"""The plot of an experiment on learning: what was measured over the games that were played."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from experiments.learning_page import EXPERIMENTS
from experiments.plots import COLOURS, figure
from experiments.result import Result, arms, curves
from experiments.targets import running_mean
from recipe.spiral.evaluation.report.points import NASH_CONV

#: NashConv of Kuhn poker's policies that know less than there is to know.
_LANDMARKS = {"uniform play": 11 / 12, "blind to the cards": 2 / 3, "blind to the bets": 0.0556}
_STYLES = ("-", "--", ":", "-.")


class _Panel(NamedTuple):
    """What is drawn; ``arms``: by whom, None: by all; ``over``: what the horizontal axis counts."""

    title: str
    measures: Sequence[str]
    landmarks: Mapping[str, float] = {}
    smooth: bool = False
    arms: Sequence[str] | None = None
    over: str = "games"


def plot(result: Result) -> Any:
    """NashConv where that was measured, otherwise how games ended; of several games, what those won that learned it.

    Thin: every run. Thick: the mean over the seeds of an arm; of NashConv, which goes up and down, also over the last
    games (``mean_over``).
    """
    names = list(next(curves(result))[2][0])
    if NASH_CONV in names:
        panels = [
            _Panel(NASH_CONV, [NASH_CONV], _LANDMARKS, smooth=True),
            _Panel("games ended by an illegal answer", ["illegal"], smooth=True),
        ]
    elif len(trained_on := _trained_on(result)) > 1:
        # games of all kinds are another number for each arm; a step has as many of one kind
        panels = [_Panel(f"{game}: won", _wins(names, game), arms=by, over="step") for game, by in trained_on.items()]
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
    found: dict[str, list[str]] = {}
    for arm, seeds in result.figures["curves"].items():
        for game in next(iter(seeds.values())).get("trained_on", []):
            found.setdefault(game, []).append(arm)
    return found


def _wins(names: Sequence[str], game: str) -> list[str]:
    return [name for name in names if name.startswith(f"{game}, ") and name.endswith(": win")]


def _legend(drawn: Any) -> None:
    """In each panel, or, where there are many lines and the same in all, one for all below them."""
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
        runs = [curve for name, _, curve in curves(result) if name == arm]
        # where batches are turns, seeds have played different numbers of games
        games = [fmean(point[panel.over] for point in points) for points in zip(*runs, strict=True)]
        for i, measure in enumerate(panel.measures):
            if measure.endswith(": win") and not any(point[measure] for run in runs for point in run):
                continue  # nobody wins against a perfect player of some games
            colour = COLOURS[(number if several else i) % len(COLOURS)]
            for run in runs:
                axes.plot(
                    [point[panel.over] for point in run],
                    [point[measure] for point in run],
                    color=colour,
                    alpha=0.3,
                    linewidth=0.8,
                )
            window = result.settings["mean_over"] if panel.smooth else 1
            means = [running_mean(run, measure, window) for run in runs]
            what = (measure.rpartition(": ")[0] or measure).removeprefix(f"{panel.title.partition(':')[0]}, ")
            label = ": ".join([arm] * several + [what] * (len(panel.measures) > 1)) or what
            style = _STYLES[i % len(_STYLES)] if several else "-"
            over_seeds = [fmean(values) for values in zip(*means, strict=True)]
            axes.plot(games, over_seeds, color=colour, linestyle=style, linewidth=1.8, label=label)
    axes.set_xlabel({"step": "steps"}.get(panel.over, panel.over))
    axes.set_title(panel.title, fontsize=10)
    axes.set_ylim(bottom=0)


PLOTS: dict[str, dict[str, Callable[[Result], Any]]] = {name: {name: plot} for name in EXPERIMENTS}
