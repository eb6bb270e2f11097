"""The table of a sweep: its jobs, how each ended, and its win rates before and after."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...processes.masking import keep_private
from ...processes.run_log import duration
from ...storage.disk import write_whole
from ...storage.record_folder import RecordFolder
from ...training.metrics import validated_roles
from ..csv_cell import in_table
from ..run_summary import first_and_last
from .jobs import Job, State

#: In the sweep's folder, for programs and for people.
TABLE = "results.csv"
REPORT = "results.md"


def write_tables(folder: Path, jobs: Sequence[Job], states: Mapping[str, State]) -> str:
    """Write both tables; returns the one for people."""
    swept = list(dict.fromkeys(key for job in jobs for key in job.swept))
    figures = {job.name: _win_rates(job.folder) for job in jobs}
    roles = sorted({role for rates in figures.values() for role in rates})
    rows: list[list[object]] = []
    lines: list[list[str]] = []
    for job in jobs:
        state = states[job.name]
        values = [job.swept.get(key, "") for key in swept]
        rates = [figures[job.name].get(role, (None, None)) for role in roles]
        rows.append([job.name, *values, state.status, state.steps, f"{state.seconds:.1f}", state.message])
        rows[-1] += ["" if rate is None else f"{rate:.4f}" for pair in rates for rate in pair]
        lines.append([*values, state.status, str(state.steps), duration(state.seconds), *map(_change, rates)])
    columns = [f"{role}/win_{when}" for role in roles for when in ("before", "after")]
    header: list[object] = ["folder", *swept, "status", "steps", "seconds", "message", *columns]
    table = io.StringIO(newline="")
    csv.writer(table).writerows(map(in_table, row) for row in [header, *rows])
    write_whole(folder / TABLE, table.getvalue())
    report = _markdown([*swept, "status", "steps", "time", *(f"{role} wins" for role in roles)], lines)
    messages = [f"- {job.name}: {states[job.name].message}" for job in jobs if states[job.name].message]
    report += "".join(f"\n{line}" for line in ["", *messages] if messages)
    write_whole(folder / REPORT, report + "\n")
    for file in (TABLE, REPORT):
        keep_private(folder / file)
    return report


def _win_rates(run_dir: Path) -> dict[str, tuple[float | None, float | None]]:
    """By game and role, the share of wins in the first and in the last validation, against the game's first opponent;
    None where there was only one."""
    validations = first_and_last(RecordFolder(run_dir / "games"))
    if not validations:
        return {}
    (first, before), (last, after) = validations
    roles = validated_roles(after, every_opponent=False)
    return {
        role.removeprefix("val-core/"): (before.get(f"{role}/win"), after[f"{role}/win"] if last > first else None)
        for role in roles
    }


def _change(rates: tuple[float | None, float | None]) -> str:
    return "" if rates == (None, None) else " -> ".join("-" if rate is None else f"{rate:.1%}" for rate in rates)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads as one with and without Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)
