"""What plots have in common. matplotlib is the extra ``plots``, and imported when something is drawn."""

from __future__ import annotations

from typing import Any

#: Told apart by people who do not see red or green as well (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


class PlotsMissing(ImportError):
    """There is nothing to draw with."""


def figure(width: float, height: float) -> Any:
    """An empty matplotlib figure, inches wide and high, that needs no screen.

    Raises:
        PlotsMissing: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsMissing("plots need matplotlib: pip install verl-spiral[plots]") from error
    return Figure(figsize=(width, height), layout="constrained")


def error_bars(values: list[tuple[float, float, float]]) -> list[list[float]]:
    """(value, low, high) as matplotlib's distances below and above."""
    return [[value - low for value, low, _ in values], [high - value for value, _, high in values]]
