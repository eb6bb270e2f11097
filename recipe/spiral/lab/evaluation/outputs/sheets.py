"""An evaluation's results as CSV files, one for each kind of figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from ....storage.disk import write_whole
from ...csv_cell import in_table
from ..benchmarks.benchmark_metrics import Score
from ..exploitability.policy_table import PolicyTable
from ..ratings.games_summary import Summary
from ..ratings.statistics import Result

#: A line of a sheet, by column.
Row = dict[str, Any]
#: Stands in ``actions.csv`` for all answers that are no legal action.
ILLEGAL = "(none that is legal)"
#: The most information sets of a game whose policy tables are written into ``actions.csv``.
MOST_INFORMATION_SETS = 1000


def write_sheets(folder: Path, sheets: Mapping[str, Sequence[Row]]) -> None:
    """Write ``<name>.csv`` for each sheet that has rows; an earlier start's, which has none now, is removed."""
    for name, rows in sheets.items():
        if not rows:
            (folder / f"{name}.csv").unlink(missing_ok=True)
        else:
            write_whole(folder / f"{name}.csv", to_csv(rows))


def to_csv(rows: Sequence[Row]) -> str:
    """Numbers have six digits; a figure that does not exist is empty."""
    out = io.StringIO()
    cells = [map(_cell, row.values()) for row in rows]
    csv.writer(out, lineterminator="\n").writerows([map(_cell, rows[0]), *cells])
    return out.getvalue()


def _cell(value: object) -> object:
    if value is None or value != value:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else in_table(value)


def summary_sheets(summary: Summary) -> dict[str, list[Row]]:
    """Results by match-up and role; ratings, best first; and each pair of players, from both sides."""
    ratings: list[Row] = [
        {"scope": rated.scope, "name": player.name}
        | {"elo": player.elo, "elo_low": player.low, "elo_high": player.high}
        | {"games": player.games, "points": player.points}
        for rated in summary.rated
        for player in rated.ratings.players
    ]
    pairs: list[Row] = [
        {"scope": rated.scope, "name": pair.name, "other": pair.other}
        | {"wins": pair.wins, "draws": pair.draws, "losses": pair.losses, "score": pair.score}
        | {"score_low": pair.low, "score_high": pair.high}
        for rated in summary.rated
        for pair in rated.ratings.head_to_head.values()
    ]
    return {"results": [_result(result) for result in summary.results], "ratings": ratings, "head_to_head": pairs}


def _result(result: Result) -> Row:
    row: Row = {}
    for name, figure in asdict(result).items():
        if isinstance(figure, dict):
            figure.pop("of", None)  # all games, which have a column
            row |= {name if part == "value" else f"{name}_{part}": value for part, value in figure.items()}
        else:
            row[name] = "both" if figure is None else figure  # the role
    return row


def benchmark_sheet(scores: Mapping[str, Sequence[Score]]) -> list[Row]:
    """A row for each policy and benchmark."""
    return [
        {"policy": policy, "benchmark": score.benchmark, "questions": score.questions, "samples": score.samples}
        | {"avg": score.avg.value, "avg_low": score.avg.low, "avg_high": score.avg.high}
        | {"pass": score.pass_at[score.samples].value, "maj": score.maj.value, "truncated": score.truncated.value}
        for policy, rows in scores.items()
        for score in rows
    ]


def action_rows(policy_tables: Mapping[tuple[str, str], PolicyTable], games: Sequence[str], by: str) -> Iterator[Row]:
    """What each policy does at each information set of small games, with 95% intervals. Tables: by policy and game."""
    for (policy, game), policy_table in policy_tables.items():
        if game not in games or len(policy_table.tree.information_sets) > MOST_INFORMATION_SETS:
            continue
        low, high = policy_table.intervals()
        table = np.column_stack([policy_table.table, policy_table.illegal])
        for row, place in enumerate(policy_table.tree.information_sets):
            for column, action in (*enumerate(place.actions), (-1, ILLEGAL)):
                yield {
                    "policy": policy,
                    "game": game,
                    "read_by": by,
                    "player": place.player,
                    "private": place.private,
                    "history": " ".join(map(str, place.history)),
                    "action": action,
                    "probability": float(table[row, column]),
                    "low": float(low[row, column]),
                    "high": float(high[row, column]),
                    "samples": None if policy_table.counts is None else int(policy_table.counts[row].sum()),
                }
