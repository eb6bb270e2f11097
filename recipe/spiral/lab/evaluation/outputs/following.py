"""An evaluation beside a training: each checkpoint of the run is evaluated as soon as it is saved, until the run ends.

Each has an evaluation of its own, ``<eval_dir>/step_<number>``; ``<eval_dir>/curves.csv`` has a line for each. The run
is only read: the evaluation can use other devices, or another machine that sees the run's folder.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ....processes.launch import is_in_use
from ....storage.checkpoints import config_file, folder_of, steps
from ....storage.disk import read_json, write_whole
from ..settings import Refused, Settings
from .points import measures_by_step
from .results import RESULTS
from .sheets import to_csv
from .tables import aligned

CURVES = "curves.csv"
_STEP = "step_"
#: The ends of the names of those measures that are printed.
_PRINTED = ("NashConv", "optimal moves", ": win", ": avg")


def follow(
    settings: Settings,
    evaluate: Callable[[Settings], str],
    show: Callable[[str], None] = print,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """Evaluate a run's checkpoints, those that are there and those to come, until no process trains there any more.

    There are ``settings.follow`` seconds between two looks. Returns the curves as a table.

    Raises:
        Refused: ``policies`` is not one run.
    """
    assert settings.follow is not None
    entry, run_dir = _the_run(settings.policies)
    start, interval = (int(entry.pop(key, None) or 0) for key in ("start", "interval"))
    name, checkpoints = str(entry.get("name") or run_dir.name), folder_of(run_dir)
    # Checkpoints of an earlier start count for the interval, even if the run has removed them since.
    begun = {int(path.name.removeprefix(_STEP)) for path in settings.eval_dir.glob(f"{_STEP}*")}
    seen: set[int] = set()
    while True:
        # In this order, so that the checkpoint that the run saves last is not missed.
        trained, there = is_in_use(run_dir), steps(checkpoints)
        due = [step for step in _wanted({*there, *begun}, start, interval) if step not in seen]
        for step in due:
            seen.add(step)
            begun.add(step)
            own = settings.eval_dir / f"{_STEP}{step:06d}"
            if step not in there:
                if not (own / f"{RESULTS}.json").is_file():
                    show(f"step {step}: its evaluation was begun, and the run has removed the checkpoint since")
                continue
            try:
                changes = {"policies": [{**entry, "step": step}], "eval_dir": own, "cache_dir": settings.cache}
                evaluate(settings.model_copy(update=changes))
            except (ValueError, OSError):
                if step in steps(checkpoints):
                    raise
                show(f"step {step}: the run has removed the checkpoint before it was read")
                continue
            show(curves(settings.eval_dir, name))
        if not due:
            if not trained:
                show(f"no process trains in {run_dir} (any more)")
                return curves(settings.eval_dir, name)
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
    run_dir = Path(str(entry["path"])).expanduser().resolve()  # as the policies are named
    if not config_file(run_dir).is_file():
        raise Refused(f"{wanted}; {run_dir} is no run (yet): start the training first")
    return entry, run_dir


def _wanted(numbers: Iterable[int], start: int, interval: int) -> Iterator[int]:
    """From ``start`` on, each at least ``interval`` steps after the one before."""
    before = None
    for step in sorted(numbers):
        if step >= start and (before is None or step >= before + interval):
            before = step
            yield step


def curves(folder: Path, run: str) -> str:
    """Write ``curves.csv`` from the evaluations that are done; returns it as a table, without the minor measures."""
    results = [read_json(file) for file in sorted(folder.glob(f"{_STEP}*/{RESULTS}.json"))]
    points = [point for result in results for point in measures_by_step(result, run).items()]
    if not points:
        return "no checkpoint has been measured yet"
    names = list(dict.fromkeys(name for _, measures in points for name in measures))
    rows = [{"step": step} | {name: measures.get(name) for name in names} for step, measures in points]
    write_whole(folder / CURVES, to_csv(rows))
    printed = [name for name in names if name.endswith(_PRINTED)]
    cells = [[f"{step}", *(_cell(measures.get(name)) for name in printed)] for step, measures in points]
    return aligned([["step", *printed], *cells])


def _cell(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
