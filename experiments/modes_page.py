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
            "`main_spiral` trained in each of verl's trainer modes, one after the other, on one machine without a GPU: "
            f"{settings['steps']} steps of {settings['games']} games, one seed. Overrides: "
            f"`{' '.join(settings['overrides'])}`.",
            "## Speed",
            _speed(result),
            "## NashConv",
            _nash_conv(result),
            bullets(_limits(result)),
        ]
    )


def _speed(result: Result) -> str:
    rows = [
        [
            row["mode"],
            f"{row['games_per_second']:.1f}",
            f"{row['step']:.2f} ({row['fastest']:.2f} to {row['slowest']:.2f})",
            f"{row['staleness']:.2f}",
            f"{row['others']:.1f}",
        ]
        for row in result.rows
    ]
    header = ["mode", "games/s", "a step, s: median (range)"]
    header += ["mean staleness", "cores used by others"]
    said = (
        f"Steps after the first {result.settings['skip']}, without validation ([metrics](../metrics.md)). Compare the "
        "seconds of two modes only where other programs used the same number of cores."
    )
    return f"{said}\n\n{table(header, rows)}"


def _nash_conv(result: Result) -> str:
    curves = result.figures["curves"]
    rows = [
        [f"{points[0]['games']:,}", *(f"{point['nash_conv']:.3f}, {point['seconds']:.0f} s" for point in points)]
        for points in zip(*curves.values(), strict=True)
    ]
    return f"With the seconds since the first validation.\n\n{table(['games', *curves], [*rows[:-1:2], rows[-1]])}"


def _limits(result: Result) -> list[str]:
    return [
        "There is one run for each mode, and the machine's pace decides which games a step trains. The page does not "
        "show that a difference in NashConv is due to the mode; [asynchronous.md](asynchronous.md) has three seeds.",
        "In `separate_async`, engine and learner compete for two cores. [scaling.md](../scaling.md) predicts GPUs.",
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
