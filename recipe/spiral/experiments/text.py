"""Tables and phrases of the experiments' pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


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
