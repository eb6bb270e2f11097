"""Tables, phrases and intervals of the experiments' pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev

#: Two-sided 95% quantiles of Student's t by degrees of freedom; for more, the last one is a little too wide.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def listing(names: Sequence[str], none: str = "none") -> str:
    """ "a", "a and b", "a, b and c", or what to say of nothing."""
    if not names:
        return none
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def interval(values: Sequence[float]) -> str:
    """Value, low and high: "0.85 (0.80 to 0.91)"."""
    value, low, high = values
    return f"{value:.2f} ({low:.2f} to {high:.2f})"


def spread(values: Sequence[float]) -> str:
    """A value, or the mean of several with its 95% interval by Student's t."""
    if len(values) == 1:
        return f"{values[0]:.3f}"
    return f"{fmean(values):.3f} ± {half_width(values):.3f}"


def half_width(values: Sequence[float]) -> float:
    """Of the 95% interval of a mean by Student's t; of at least two values."""
    return _T.get(len(values) - 1, _T[9]) * stdev(values) / len(values) ** 0.5


def span(numbers: Sequence[int]) -> str:
    """ "1,000", or "900 to 1,000"."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
