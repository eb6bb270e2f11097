"""The page of the comparison of trainer modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from experiments.result import Result
from experiments.text import COLOURS, bullets, figure, table


def body(result: Result) -> str:
    """The page between its head and its end."""
    settings = result.settings
    return "\n\n".join(
        [
            f"`main_spiral` trained with the same seed in each of verl's trainer modes, one run after the other on one "
            f"machine without a GPU: {settings['steps']} steps of {settings['games']} games. The overrides of all runs "
            f"were `{' '.join(settings['overrides'])}`. NashConv was computed every {settings['every']} steps.",
            "## Speed",
            _speed(result),
            "## How old games are",
            _ages(result),
            "## NashConv",
            _nash_conv(result),
            "## What this does not show",
            bullets(_limits(result)),
        ]
    )


def _speed(result: Result) -> str:
    rows = [
        [
            row["mode"],
            f"{row['games_per_second']:.1f}",
            f"{row['step']:.2f} ({row['fastest']:.2f} to {row['slowest']:.2f})",
            f"{row['perf/idle/engine']:.0%}",
            f"{row['perf/idle/policy']:.0%}",
            f"{row['perf/rollout/engine_share']:.0%}",
            f"{row['others']:.1f}",
        ]
        for row in result.rows
    ]
    header = ["mode", "games/s", "a step, s: median (range)", "engine idle", "learner idle"]
    header += ["of the games' time in the engine", "cores used by others"]
    notes = [
        f"Of all steps but the first {result.settings['skip']}, without validation. Idle shares are those of "
        "`perf/idle/...`, and the next one that of `perf/rollout/engine_share` (docs/metrics.md).",
        "The last column is the mean number of cores that other programs used meanwhile. The seconds of two modes can "
        "be compared only as far as these numbers are alike; the idle shares less so.",
    ]
    return f"{table(header, rows)}\n\n{bullets(notes)}"


def _ages(result: Result) -> str:
    shares = result.figures["staleness"]
    ages = sorted({age for of_mode in shares.values() for age in of_mode}, key=int)
    rows = [
        [
            row["mode"],
            *(f"{shares[row['mode']].get(age, 0.0):.1%}" for age in ages),
            f"{row['staleness']:.2f}",
            f"{row['async/versions_in_a_game']:.2f}" if row["mode"] != "sync" else "1.00",
        ]
        for row in result.rows
    ]
    said = "The share of the trained games with each staleness, in versions of the policy (docs/asynchronous.md)."
    return f"{said}\n\n{table(['mode', *ages, 'mean', 'versions in a game'], rows)}"


def _nash_conv(result: Result) -> str:
    curves = result.figures["curves"]
    games = [point["games"] for point in next(iter(curves.values()))]
    rows = [
        [
            f"{count:,}",
            *(
                cell
                for points in curves.values()
                for cell in (f"{points[place]['nash_conv']:.3f}", f"{points[place]['seconds']:.0f}")
            ),
        ]
        for place, count in enumerate(games)
    ]
    header = ["games", *(cell for mode in curves for cell in (mode, "s"))]
    return f"{table(header, rows)}\n\nSeconds are since the first validation, and later validations are in them."


def _limits(result: Result) -> list[str]:
    return [
        "There is one run for each mode, so the page does not show that a difference in NashConv is due to the mode: "
        "asynchronous runs with one seed differ too, because the machine's pace decides which games a step trains. "
        "[asynchronous.md](asynchronous.md) has three seeds, by a loop without the machine's pace.",
        "In `separate_async`, engine and learner compete for the two cores. Responses are short. "
        "What the modes gain on GPUs is not shown; docs/scaling.md predicts it.",
    ]


def plot(result: Result) -> Any:
    """NashConv over games, and over seconds."""
    drawn = figure(10.4, 3.8)
    for axes, over in zip(drawn.subplots(1, 2), ("games", "seconds"), strict=True):
        for colour, (mode, points) in zip(COLOURS, result.figures["curves"].items(), strict=False):
            horizontal = [point[over] for point in points]
            axes.plot(horizontal, [point["nash_conv"] for point in points], color=colour, label=mode)
        axes.set_xlabel(over)
        axes.set_title("NashConv", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7)
    return drawn


PLOTS: dict[str, Callable[[Result], Any]] = {"modes": plot}
