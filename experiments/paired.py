"""Arms beside the first one, seed by seed: what a difference is beyond what seeds do to both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.result import Result, arms
from experiments.text import spread, table
from recipe.spiral.evaluation.report.points import NASH_CONV

#: What is compared where there is NashConv.
_MEAN = f"{NASH_CONV}, mean"


def paired(result: Result) -> str:
    """A table of differences to the first arm with the same seed; empty where there is nothing to compare."""
    first, *others = arms(result)
    if not others or len(result.seeds) < 2:
        return ""
    rows = {(row["arm"], row["seed"]): _compared(row) for row in result.rows}
    if not (names := list(rows[first, result.seeds[0]])):
        return ""
    lines = [
        [arm, *(spread([rows[arm, seed][name] - rows[first, seed][name] for seed in result.seeds]) for name in names)]
        for arm in others
    ]
    return (
        f"{table(['arm', *names], lines)}\n\nLess what the arm {first!r} has with the same seed: the mean over the "
        "seeds, and its 95% interval by Student's t, not corrected for the number of comparisons. An interval that "
        "holds 0 does not show a difference."
    )


def _compared(row: Mapping[str, Any]) -> dict[str, float]:
    """The mean of NashConv; otherwise wins and half of the draws, in each role."""
    if _MEAN in row:
        return {_MEAN: row[_MEAN]}
    places = [name.removesuffix(": win") for name in row if name.endswith(": win")]
    return {f"{place}: score": row[f"{place}: win"] + row[f"{place}: draw"] / 2 for place in places}
