"""What the pages share: Markdown tables, numbers with intervals and p-values, and empty figures for plots.

scipy and matplotlib belong to the extra ``plots``; they are imported when something is computed or drawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

from recipe.spiral.extras import install

#: Colours that people with a colour vision deficiency can tell apart (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
#: A corrected p-value below this counts as a difference.
LEVEL = 0.05


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def bullets(lines: Iterable[str]) -> str:
    """A Markdown list of the lines that are not empty."""
    return "\n".join(f"- {line}" for line in lines if line)


def listing(names: Sequence[str]) -> str:
    """ "none", "a", "a and b", or "a, b and c"."""
    if not names:
        return "none"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def span(numbers: Sequence[int]) -> str:
    """ "1,000", or "900 to 1,000"."""
    low, high = min(numbers), max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def interval(values: Sequence[float]) -> str:
    """Value, low and high: "0.85 [0.80, 0.91]"."""
    value, low, high = values
    return f"{value:.2f} [{low:.2f}, {high:.2f}]"


def spread(values: Sequence[float], form: str = ".3f") -> str:
    """A value, or the mean of several with its 95% interval by Student's t."""
    if len(values) == 1:
        return format(values[0], form)
    return f"{fmean(values):{form}} ± {half_width(values):{form}}"


def by_start(rows: Sequence[Mapping[str, Any]], values: Sequence[float]) -> list[float]:
    """The values of runs, of which these are the rows; where runs have several warm starts, the mean of each of them:
    the warm starts are the repetitions, not the seeds."""
    found: dict[Any, list[float]] = {}
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        found.setdefault(row.get("warm_start", -1 - place), []).append(value)
    return [fmean(of_start) for of_start in found.values()]


def half_width(values: Sequence[float]) -> float:
    """Half of the 95% interval of a mean by Student's t, from at least two values."""
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def p_value(differences: Sequence[float]) -> float:
    """The two-sided p-value of Student's t test that the mean of at least two differences is 0."""
    from scipy.stats import t

    mean, error = fmean(differences), stdev(differences) / len(differences) ** 0.5
    if error == 0:
        return float(mean == 0)
    return float(2 * t.sf(abs(mean) / error, len(differences) - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values, corrected for their number (Holm, Scandinavian Journal of Statistics 6, 1979)."""
    corrected, highest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = highest
    return corrected


def p_text(p: float) -> str:
    """ "0.120", or "<0.001"."""
    return "<0.001" if p < 0.001 else f"{p:.3f}"


class PlotsMissing(ImportError):
    """matplotlib is not installed."""


def figure(width: float, height: float) -> Any:
    """An empty matplotlib figure, inches wide and high, that needs no screen.

    Raises:
        PlotsMissing: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise PlotsMissing(f"plots need matplotlib: {install('plots')}") from error
    return Figure(figsize=(width, height), layout="constrained")
