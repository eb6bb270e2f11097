"""An evaluation's results as CSV files, one for each kind of figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ...storage.disk import write_whole
from ..benchmarks.metrics import Score
from ..exploitability.measures import Yardsticks
from ..exploitability.policy_table import Reading
from ..ratings.statistics import Mean, PerTurn, Rate, Result
from ..ratings.summary import Rated, Summary

Row = Sequence[object]
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
#: Stands in ``actions.csv`` for all answers that are no legal action.
ILLEGAL = "(none that is legal)"
#: The most information sets of a game whose policy tables are written into ``actions.csv``.
MOST_INFORMATION_SETS = 1000
_RATES = ("win", "draw", "loss", "invalid", "opponent_invalid", "turn_cap")
_RATES_HEADER = [column.format(name) for name in _RATES for column in ("{}_count", "{}", "{}_low", "{}_high")]
_MEANS = ("reward", "turns")
_MEANS_HEADER = [column.format(name) for name in _MEANS for column in ("{}", "{}_error")]
_PER_TURN = ("response_tokens", "truncated")
_PER_TURN_HEADER = [column.format(name) for name in _PER_TURN for column in ("{}", "{}_total", "{}_turns")]
_BENCHMARKS = ("policy", "benchmark", "questions", "samples", "avg", "avg_low", "avg_high", "pass", "maj", "truncated")


def write_summary(folder: Path, summary: Summary) -> None:
    """Write ``results.csv``, and where there are ratings ``ratings.csv`` and ``head_to_head.csv``."""
    write_whole(folder / "results.csv", results_csv(summary.results))
    if summary.rated:
        write_whole(folder / "ratings.csv", ratings_csv(summary.rated))
        write_whole(folder / "head_to_head.csv", _head_to_head_csv(summary.rated))


def results_csv(results: Sequence[Result]) -> str:
    """A row for each match-up and role."""
    names = ("policy", "opponent", "game", "role", "games", "void")
    header = [*names, *_RATES_HEADER, *_MEANS_HEADER, *_PER_TURN_HEADER]
    rows = []
    for result in results:
        row: list[object] = [getattr(result, name) for name in names]
        row[3] = "both" if result.role is None else result.role
        for figure in (getattr(result, name) for name in (*_RATES, *_MEANS, *_PER_TURN)):
            match figure:
                case Rate():
                    row += [figure.count, figure.value, *(figure.interval or (None, None))]
                case Mean():
                    row += [figure.value, figure.error]
                case PerTurn():
                    row += [figure.value, figure.total, figure.turns]
        rows.append(row)
    return _csv(header, rows)


def ratings_csv(rated: Sequence[Rated]) -> str:
    """A row for each scope and player, best first."""
    rows = [
        (each.scope, player.name, player.elo.value, player.elo.low, player.elo.high, player.games, player.points)
        for each in rated
        if each.ratings
        for player in each.ratings.players
    ]
    return _csv(("scope", "name", "elo", "elo_low", "elo_high", "games", "points"), rows)


def _head_to_head_csv(rated: Sequence[Rated]) -> str:
    """A row for each scope and pair, from both sides."""
    rows = [
        (each.scope, pair.name, pair.other, pair.wins, pair.draws, pair.losses, pair.score, *pair.interval)
        for each in rated
        for pair in each.head_to_head.pairs
    ]
    return _csv(("scope", "name", "other", "wins", "draws", "losses", "score", "score_low", "score_high"), rows)


def write_sheets(folder: Path, exact: Yardsticks, scores: Mapping[str, Sequence[Score]]) -> None:
    """Write ``exploitability.csv``, ``optimality.csv``, ``not_lost.csv`` and ``benchmarks.csv``, those with rows."""
    exploited: list[Row] = [
        (
            *(one.policy, figures.game, one.by, figures.nash_conv, *(figures.interval or (None, None))),
            *(figures.exploitability, figures.value, *figures.against_uniform, *figures.illegal),
            figures.nash_conv_as_judged,
        )
        for one in exact.exploitability
        for figures in [one.figures]
    ]
    optimal: list[Row] = [
        (
            *(one.policy, one.game, one.by, one.all.decisions[0], one.all.share, *(one.all.interval or (None, None))),
            *(one.all.critical, one.against_random.share, *(one.against_random.interval or (None, None))),
            one.against_random.critical,
        )
        for one in exact.optimality
    ]
    unbeaten: list[Row] = [
        (
            *(one.policy, one.opponent, one.game, one.figures.win, one.figures.draw, one.figures.loss),
            *(one.figures.share, *one.figures.interval),
        )
        for one in exact.not_lost
    ]
    benchmarks: list[Row] = [
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
        ("benchmarks", _BENCHMARKS, benchmarks),
    ]
    for sheet, header, rows in sheets:
        if rows:
            write_whole(folder / f"{sheet}.csv", _csv(header, rows))


def write_actions(
    folder: Path, policy_tables: Mapping[tuple[str, str], Reading], games: Sequence[str], by: str
) -> None:
    """Write ``actions.csv``: what each policy does at each information set of small games, with 95% intervals.

    Args:
        policy_tables: by policy and game.
        games: those whose tables are written.
        by: how the tables were made.
    """
    rows: list[Row] = []
    for (policy, game), reading in policy_tables.items():
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
