"""An evaluation beside a training: each checkpoint of the run is measured as soon as it is there, until the run ends.

Each has an evaluation of its own, ``<eval_dir>/step_<number>``; ``<eval_dir>/curves.csv`` has a line for each. The run
is only read, so it can be on other devices, or on another machine that sees its folder.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..checkpoints import config_file, folder_of, steps
from ..disk import write_whole
from ..launch import is_in_use
from .points import points_of
from .report import RESULTS
from .settings import Refused, Settings
from .tables import aligned

CURVES = "curves.csv"
#: Of a point's measures, those that people are told.
_TOLD = ("NashConv", "optimal moves", ": win")


def follow(
    settings: Settings,
    evaluate: Callable[[Settings], str],
    show: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Evaluate a run's checkpoints, those that are there and those to come; returns when nobody trains there any more.

    Args:
        settings: with ``follow``, in seconds between two looks, and one run as ``policies``.
        evaluate: makes an evaluation from its settings, or goes on with it, and returns its text.

    Returns:
        The curves as a table.

    Raises:
        Refused: ``policies`` is not one run.
    """
    assert settings.follow is not None
    entry, run_dir = _the_run(settings.policies)
    start, interval = (int(entry.pop(key, None) or 0) for key in ("start", "interval"))
    checkpoints, seen = folder_of(run_dir), set[int]()
    while True:
        # Asked before the checkpoints are listed: what the run saves last is not missed.
        trained = is_in_use(run_dir)
        due = [step for step in _wanted(steps(checkpoints), start, interval, seen) if step not in seen]
        for step in due:
            seen.add(step)
            own = settings.folder / f"step_{step:06d}"
            try:
                evaluate(replace(settings, policies=[{**entry, "step": step}], folder=own))
            except (ValueError, OSError):
                if step in steps(checkpoints):
                    raise
                show(f"step {step}: the run has removed this checkpoint before it was read")
                continue
            show(curves(settings.folder))
        if not due:
            if not trained:
                show(f"nobody trains in {run_dir}: {len(seen)} checkpoints followed")
                return curves(settings.folder)
            sleep(settings.follow)


def _the_run(policies: Any) -> tuple[dict[str, Any], Path]:
    wanted = "policies: with follow it must be one run: policies=[outputs/spiral/default]"
    if not isinstance(policies, list) or len(policies) != 1:
        raise Refused(wanted)
    entry = dict(policies[0]) if isinstance(policies[0], Mapping) else {"path": str(policies[0])}
    if entry.get("kind", "run") not in ("run", "auto") or not entry.get("path"):
        raise Refused(wanted)
    if unfit := sorted({"step", "size"} & entry.keys()):
        raise Refused(f"policies: {', '.join(unfit)}: not with follow; start and interval choose the checkpoints")
    run_dir = Path(str(entry["path"])).expanduser().absolute()
    if not config_file(run_dir).is_file():
        raise Refused(f"{wanted}; {run_dir} is none (yet): start the training first")
    return entry, run_dir


def _wanted(there: Iterable[int], start: int, interval: int, seen: Iterable[int]) -> Iterator[int]:
    """From ``start`` on, each at least ``interval`` steps after the one before, also after those that are gone."""
    before = None
    for step in sorted({*there, *seen}):
        if step >= start and (before is None or step >= before + interval):
            before = step
            yield step


def curves(folder: Path) -> str:
    """Write ``curves.csv`` from the evaluations that are done; returns what people are told of it."""
    points = []
    for file in sorted(folder.glob(f"step_*/{RESULTS}.json")):
        points += points_of(json.loads(file.read_text(encoding="utf-8")), batch=0)
    if not points:
        return "no checkpoint has been measured yet"
    names = list(dict.fromkeys(name for point in points for name in point.measures))
    sheet = io.StringIO(newline="")
    rows = [[point.step, *(point.measures.get(name, "") for name in names)] for point in points]
    csv.writer(sheet).writerows([["step", *names], *rows])
    write_whole(folder / CURVES, sheet.getvalue())
    told = [name for name in names if name.endswith(_TOLD)]
    cells = [[f"{point.step}", *(_cell(point.measures.get(name)) for name in told)] for point in points]
    return aligned([["step", *told], *cells])


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
