"""The table of a sweep: its jobs, how each ended, and its win rates before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...processes.masking import keep_private
from ...storage.disk import write_whole
from ...storage.record_folder import RecordFolder
from ...training.metrics import validated_roles
from ..evaluation.outputs.sheets import Row, to_csv
from ..evaluation.outputs.tables import aligned
from ..run_summary import first_and_last
from .jobs import Job, State

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
