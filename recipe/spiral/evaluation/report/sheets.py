"""Metrics and benchmarks as CSV: a row for each policy and game, or benchmark."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...storage.disk import write_whole
from ..benchmarks.metrics import Score
from ..exploitability.metrics import Metrics
from ..exploitability.policy_table import PolicyTable

Row = tuple[object, ...]
_EXPLOITABILITY = (
    *("policy", "game", "read_by", "nash_conv", "nash_conv_low", "nash_conv_high", "exploitability", "value"),
    *("against_uniform_first", "against_uniform_second", "illegal_mean", "illegal_largest", "nash_conv_as_judged"),
)
_OPTIMALITY = (
    *("policy", "game", "read_by", "decisions", "all_decisions", "all_decisions_low", "all_decisions_high"),
    *("critical_decisions", "against_random", "against_random_low", "against_random_high", "against_random_critical"),
)
_NOT_LOST = ("policy", "opponent", "game", "win", "draw", "loss", "not_lost", "not_lost_low", "not_lost_high")
_ACTIONS = (
    *("policy", "game", "read_by", "player", "private", "history", "action"),
    *("probability", "low", "high", "samples"),
)
ILLEGAL = "(none that is legal)"
#: Information sets above which a game's are too many to be written down for each policy.
MOST_INFORMATION_SETS = 1000
_BENCHMARKS = ("policy", "benchmark", "questions", "samples", "avg", "avg_low", "avg_high", "pass", "maj", "truncated")


def write_sheets(folder: Path, found: Metrics, scores: Mapping[str, Sequence[Score]]) -> None:
    """Write ``exploitability.csv``, ``optimality.csv``, ``not_lost.csv`` and ``benchmarks.csv``, those with rows."""
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
            *(one.policy, one.game, one.by, one.all.decisions[0], one.all.share, *(one.all.interval or (None, None))),
            *(one.all.critical, one.against_random.share, *(one.against_random.interval or (None, None))),
            one.against_random.critical,
        )
        for one in found.optimality
    ]
    unbeaten: list[Row] = [
        (
            *(one.policy, one.opponent, one.game, one.figures.win, one.figures.draw, one.figures.loss),
            *(one.figures.share, *one.figures.interval),
        )
        for one in found.not_lost
    ]
    asked: list[Row] = [
        (
            *(name, score.benchmark, score.questions, score.samples, score.avg.value, score.avg.low, score.avg.high),
            *(score.pass_at[score.samples].value, score.maj.value, score.truncated.value),
        )
        for name, those in scores.items()
        for score in those
    ]
    sheets: list[tuple[str, Sequence[str], Sequence[Row]]] = [
        ("exploitability", _EXPLOITABILITY, exploited),
        ("optimality", _OPTIMALITY, optimal),
        ("not_lost", _NOT_LOST, unbeaten),
        ("benchmarks", _BENCHMARKS, asked),
    ]
    for sheet, header, rows in sheets:
        if rows:
            write_whole(folder / f"{sheet}.csv", _csv(header, rows))


def write_actions(folder: Path, readings: Mapping[tuple[str, str], PolicyTable], games: Sequence[str], by: str) -> None:
    """Write ``actions.csv``: what each policy does at each information set of small games, with 95% intervals.

    Args:
        readings: by policy and game.
        games: whose are written.
        by: how they were read.
    """
    rows: list[Row] = []
    for (policy, game), reading in readings.items():
        if game not in games or len(reading.tree.information_sets) > MOST_INFORMATION_SETS:
            continue
        low, high = reading.intervals()
        table = np.column_stack([reading.table, reading.illegal])
        for row, one in enumerate(reading.tree.information_sets):
            samples = None if reading.counts is None else int(reading.counts[row].sum())
            place = (policy, game, by, one.player, one.private, " ".join(map(str, one.history)))
            for column, action in (*enumerate(one.actions), (-1, ILLEGAL)):
                limits = float(low[row, column]), float(high[row, column])
                rows.append((*place, action, float(table[row, column]), *limits, samples))
    if rows:
        write_whole(folder / "actions.csv", _csv(_ACTIONS, rows))


def _csv(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([header, *(map(_cell, row) for row in rows)])
    return out.getvalue()


def _cell(value: object) -> object:
    """Numbers with six digits; what is not known is empty."""
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else value
