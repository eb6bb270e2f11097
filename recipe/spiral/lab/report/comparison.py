"""Several runs on one page, and a sweep: a curve of each run, or of each setting with an interval over its seeds."""

from __future__ import annotations

import csv
import io
import math
import os
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from ...checks.names import values as all_settings
from ...processes.launch import is_in_use
from ...storage.checkpoints import config_file, config_of
from ...storage.metrics_file import METRICS
from ...storage.run_config import setting
from ..sweep.sweep_table import TABLE
from .bundle import OF_SEVERAL, Bundle
from .curves import SHOWN, Curves, since_start, thinned_alike
from .evaluation_games import is_evaluation
from .run_report import REPORT, NoRun, is_run

#: The most points of a curve; there are many curves.
POINTS = 200
#: The keys of a sweep that make a repetition, and not another setting.
_SEEDS = ("seed", "data.seed")


def runs_of(folders: Sequence[Path]) -> list[Path]:
    """The runs in folders: a folder is one itself, or a sweep's, whose table names its runs. Raises NoRun: a folder is
    neither, and no sweep's job that has not begun."""
    return [run for folder in folders for run in _runs_in(folder)]


def _runs_in(folder: Path) -> list[Path]:
    if rows := _table(folder):
        runs = [folder / row["folder"] for row in rows]
        if not any(run.is_dir() for run in runs) and not is_in_use(folder):
            raise NoRun(f"{folder}: none of the runs is here that its {TABLE} names")
        return runs
    if is_evaluation(folder):
        raise NoRun(f"{folder}: this is an evaluation; without --compare its games are shown")
    if not (is_run(folder) or (folder / METRICS).is_file() or _row(Path(os.path.abspath(folder)))):
        raise NoRun(f"{folder}: no run is here, and no sweep")
    return [folder]


def _row(run: Path) -> dict[str, str]:
    """A run's row in the table of the sweep whose job it is; empty without one."""
    return next((row for row in _table(run.parent) if row["folder"] == run.name), {})


def _table(sweep: Path) -> list[dict[str, str]]:
    try:
        rows = csv.DictReader(io.StringIO((sweep / TABLE).read_bytes().decode(), newline=""))
        return [row for row in rows if row.get("folder")]
    except (OSError, UnicodeError, csv.Error):
        return []


class Comparison:
    """The page, in the report's ``folder``, of several runs: those in folders of runs and of sweeps."""

    def __init__(self, compared: Sequence[Path], folder: Path) -> None:
        self.bundle = Bundle(folder)
        # Each once, also if a sweep and one of its jobs are named.
        self._runs = list({run.resolve(): Path(os.path.abspath(run)) for run in runs_of(compared)}.values())
        # Between two jobs only the sweep's own folder is in use.
        self._folders = [*compared, *self._runs]
        self._labels = _labels(self._runs)
        self._curves = [Curves(run) for run in self._runs]
        self._looked: Any = None

    def renew(self) -> bool:
        """Take in what is new; returns whether there was anything."""
        self.bundle.begin(OF_SEVERAL)
        new = any([curves.renew() for curves in self._curves])
        running = any(map(is_in_use, self._folders))
        states = [self._state(run) for run in self._runs]
        if not new and (running, states) == self._looked:
            return False
        self._looked = running, states
        self._write(running, states)
        return True

    def notes(self) -> list[str]:
        return []

    def reports(self) -> list[Path]:
        """The folder of the page, and those of the runs that have one in theirs."""
        return [self.bundle.folder, *(run / REPORT for run in self._runs)]

    def _state(self, run: Path) -> dict[str, Any]:
        row = _row(run)
        swept = {key: value for key, value in row.items() if key not in _COLUMNS and "/" not in key}
        running = is_in_use(run)
        status = row.get("status") or ("running" if running else "" if is_run(run) else "not begun")
        if status == "running" and not running and not is_in_use(run.parent):
            status = "interrupted"  # the sweep was killed, and could not say so in its table
        page = run / REPORT / "index.html"  # the run's own, if it was made in its folder
        link = os.path.relpath(page, self.bundle.folder) if page.is_file() else None
        return {"name": self._labels[run], "status": status, "running": running, "swept": swept, "link": link}

    def _groups(self, swept: Sequence[Mapping[str, str]]) -> dict[str, list[int]]:
        """The runs that are seeds of one setting, by the setting's name: jobs of one sweep, and otherwise each run
        alone. Unless there is one sweep and nothing else, the name has the sweep's as well."""
        sweeps = _labels([run.parent for run, keys in zip(self._runs, swept, strict=True) if keys])
        several = len(sweeps) > 1 or not all(swept)
        groups: dict[str, list[int]] = {}
        for number, (run, keys) in enumerate(zip(self._runs, swept, strict=True)):
            setting = ", ".join(f"{key}={value}" for key, value in keys.items() if key not in _SEEDS) or "all seeds"
            prefix = f"{sweeps[run.parent]}: " if keys and several else ""
            groups.setdefault(prefix + setting if keys else self._labels[run], []).append(number)
        return groups

    def _write(self, running: bool, states: Sequence[dict[str, Any]]) -> None:
        groups = self._groups([state["swept"] for state in states])
        files = map(config_file, self._runs)
        stamps = [file.stat().st_mtime_ns if file.is_file() else 0 for file in files]
        settings = list(map(_settings, self._runs, stamps))
        all_curves = [curves.values for curves in self._curves]
        names = sorted({name for curves in all_curves for name in curves if name.startswith(SHOWN)})
        for place, name in enumerate(names):
            thin = thinned_alike([curves.get(name, {}) for curves in all_curves], POINTS)
            means = [_group(thin, runs) for runs in groups.values()]
            of_runs = [curve if name in curves else None for curve, curves in zip(thin, all_curves, strict=True)]
            self.bundle.write(f"metric/{place}", {"runs": of_runs, "groups": means})
        facts = {
            "runs": [
                {
                    **state,
                    "total": total if isinstance(total := known.get("trainer.total_training_steps"), int) else None,
                    "times": since_start(curves.times, POINTS),
                    "step": max(curves.times, default=0),
                    "last": {
                        name: values[max(values)]
                        for name, values in curves.values.items()
                        if name.startswith("val-core/")
                    },
                }
                for known, state, curves in zip(settings, states, self._curves, strict=True)
            ],
            "groups": [[name, runs] for name, runs in groups.items()],
            "settings": differing(settings),
            "metrics": names,
            "running": running,
        }
        self.bundle.write("comparison", facts)
        self.bundle.write("version", {"version": time.time_ns() // 1_000_000, "running": running})


#: Settings that say where a run lies and how its processes start, and not what is trained.
_ELSEWHERE = ("run_dir", "trainer.experiment_name", "ray_kwargs.")


def differing(settings: Sequence[Mapping[str, Any]]) -> list[list[Any]]:
    """[key, its value in each] of what is not the same in all; None: not set, or the run has no config."""
    known = [one for one in settings if one]
    keys = sorted({key for one in known for key in one})
    return [
        [key, [one.get(key) for one in settings]]
        for key in keys
        if any(one.get(key) != known[0].get(key) for one in known)
    ]


@cache
def _settings(run: Path, stamp: int) -> dict[str, Any]:
    """All settings of a run, by their whole keys, read again where its file has another ``stamp``: it takes a moment,
    and a sweep has many. Paths in its own folder are the same in all runs."""
    if (config := config_of(run)) is None:
        return {}
    place = str(setting(config, "run_dir") or run)
    return {
        key: value.replace(place, "<run_dir>") if isinstance(value, str) else value
        for key, value in all_settings(config, resolve=False).items()
        if not key.startswith(_ELSEWHERE)
    }


#: Of a sweep's table: what is not swept.
_COLUMNS = ("folder", "status", "steps", "seconds", "message")


def _labels(folders: Sequence[Path]) -> dict[Path, str]:
    """A name for each folder: its own, with as much of its path as tells it from the others."""
    labels = {}
    for folder in dict.fromkeys(folders):
        parts, others = folder.parts, {other.parts for other in folders if other.name == folder.name} - {folder.parts}
        length = next(n for n in range(1, len(parts) + 1) if all(other[-n:] != parts[-n:] for other in others))
        labels[folder] = "/".join(parts[-length:])
    return labels


def _group(curves: Sequence[list[list[Any]]], runs: Sequence[int]) -> list[Any]:
    """[steps, mean, low, high, number of runs]: the mean over the runs that have a step, with the 95% interval of
    Student's t where there are several."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for step, value in zip(*curves[run], strict=True):
            if value is not None:
                values.setdefault(step, []).append(value)
    steps = sorted(values)
    halves = [_half(values[step]) for step in steps]
    means = [fmean(values[step]) for step in steps]
    low = [middle - half for middle, half in zip(means, halves, strict=True)]
    high = [middle + half for middle, half in zip(means, halves, strict=True)]
    return [steps, means, low, high, [len(values[step]) for step in steps]]


def _half(values: Sequence[float]) -> float:
    return _t(len(values) - 1) * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


@cache
def _t(degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, degrees))
