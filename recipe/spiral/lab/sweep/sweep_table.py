"""The table of a sweep: its jobs, how each ended, and its win rates before and after."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...processes.masking import keep_private
from ...storage.disk import write_whole
from ...storage.record_folder import RecordFolder
from ...training.metrics import validated_roles
from ..run_summary import first_and_last
from .jobs import Job, State

Row = dict[str, Any]
#: In the sweep's folder, for programs and for people.
TABLE = "results.csv"
REPORT = "results.txt"


def write_tables(folder: Path, jobs: Sequence[Job], states: Mapping[str, State]) -> str:
    """Write both tables; returns the one for people, which has messages below it."""
    swept = list(dict.fromkeys(key for job in jobs for key in job.swept))
    rates = [_win_rates(job.folder) for job in jobs]
    columns = list(dict.fromkeys(column for row in rates for column in row))
    rows: list[Row] = []
    for job, wins in zip(jobs, rates, strict=True):
        state = states[job.name]
        ended = {"status": state.status, "steps": state.steps, "seconds": round(state.seconds, 1)}
        rows.append({"folder": job.name, **{key: job.swept.get(key, "") for key in swept}, **ended})
        rows[-1] |= {"message": state.message, **{column: wins.get(column) for column in columns}}
    shown = [*swept, "status", "steps", "seconds", *columns]
    cells = [["" if row[column] is None else str(row[column]) for column in shown] for row in rows]
    messages = [f"- {row['folder']}: {row['message']}" for row in rows if row["message"]]
    report = "\n".join([aligned([shown, *cells], left=len(swept) + 1), *messages])
    for file, text in ((TABLE, to_csv(rows)), (REPORT, report + "\n")):
        write_whole(folder / file, text)
        keep_private(folder / file)
    return report


def _win_rates(run_dir: Path) -> dict[str, float | None]:
    """By game and role, the share of wins in the first and in the last validation, against the game's first opponent;
    None where there was only one."""
    validations = first_and_last(RecordFolder(run_dir / "games"))
    if not validations:
        return {}
    (first, before), (last, after) = validations
    found: dict[str, float | None] = {}
    for role in validated_roles(after, every_opponent=False):
        name, won = role.removeprefix("val-core/"), f"{role}/win"
        found[f"{name}/win_before"] = round(before[won], 4) if won in before else None
        found[f"{name}/win_after"] = round(after[won], 4) if last > first else None
    return found


def to_csv(rows: Sequence[Row]) -> str:
    """A figure that does not exist is empty; a text that a spreadsheet would take for a formula is quoted."""
    out = io.StringIO()
    cells = [["" if cell is None else _cell(cell) for cell in row.values()] for row in rows]
    csv.writer(out, lineterminator="\n").writerows([[*map(_cell, rows[0])], *cells])
    return out.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return f"{value:.6g}" if isinstance(value, float) else value
    return f"'{value}" if value.lstrip()[:1] in tuple("=+-@") else value


def aligned(rows: Sequence[Sequence[str]], left: int = 0) -> str:
    """Columns side by side, the first ``left`` of them flush left, with a line below the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(c.ljust(w) if at < left else c.rjust(w) for at, (c, w) in enumerate(zip(row, widths, strict=True)))
        for row in rows
    ]
    return "\n".join([lines[0].rstrip(), "-" * max(map(len, lines)), *(line.rstrip() for line in lines[1:])])
