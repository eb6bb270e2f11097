"""Yardsticks and benchmarks as CSV: a row for each policy and game, or benchmark."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..disk import write_whole
from .benchmarks.metrics import Score
from .yardsticks import Yardsticks

Row = tuple[object, ...]
_EXPLOITABILITY = (
    *("policy", "game", "read_by", "nash_conv", "nash_conv_low", "nash_conv_high", "exploitability", "value"),
    *("against_uniform_first", "against_uniform_second", "illegal_mean", "illegal_largest", "nash_conv_as_judged"),
)
_OPTIMALITY = (
    *("policy", "game", "read_by", "all_decisions", "critical_decisions"),
    *("against_random", "against_random_critical"),
)
_BENCHMARKS = ("policy", "benchmark", "questions", "samples", "avg", "avg_low", "avg_high", "pass", "maj", "cut_off")


def write_sheets(folder: Path, found: Yardsticks, scores: Mapping[str, Sequence[Score]]) -> None:
    """Write ``exploitability.csv``, ``optimality.csv`` and ``benchmarks.csv``, those that have rows."""
    exploited: list[Row] = [
        (
            *(one.policy, figures.game, one.by, figures.nash_conv, *(figures.interval or (None, None))),
            *(figures.exploitability, figures.value, *figures.against_uniform, *figures.illegal),
            figures.nash_conv_as_judged,
        )
        for one in found.exploitability
        for figures in [one.figures]
    ]
    optimal: list[Row] = [
        (
            *(one.policy, one.game, one.by, one.all.share, one.all.critical),
            *(one.against_random.share, one.against_random.critical),
        )
        for one in found.optimality
    ]
    asked: list[Row] = [
        (
            *(name, score.benchmark, score.questions, score.samples, score.avg.value, score.avg.low, score.avg.high),
            *(score.pass_at[score.samples].value, score.maj.value, score.cut_off.value),
        )
        for name, those in scores.items()
        for score in those
    ]
    sheets: list[tuple[str, Sequence[str], Sequence[Row]]] = [
        ("exploitability", _EXPLOITABILITY, exploited),
        ("optimality", _OPTIMALITY, optimal),
        ("benchmarks", _BENCHMARKS, asked),
    ]
    for sheet, header, rows in sheets:
        if rows:
            write_whole(folder / f"{sheet}.csv", _csv(header, rows))


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *(map(_cell, row) for row in rows)])
    return out.getvalue()


def _cell(value: object) -> object:
    """Numbers with six digits; what is not known is empty."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
