"""Runs the quick loop for an experiment: several runs at a time, each on one core; finished runs are kept."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.composed import compose_run
from experiments.curve_points import Point
from experiments.result import Curve, add_commit, current_commit
from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.processes.run_log import LOG, duration
from recipe.spiral.processes.terminal import Follow
from recipe.spiral.storage.disk import write_whole

#: In a finished run's folder: its curve, and the last policy.
CURVE, MODEL = "curve.json", "model"


def run_all(runs: Mapping[Path, tuple[str, Sequence[str]]], every: int) -> list[Curve]:
    """Train and measure what is not done yet; returns the curves in the order of ``runs``.

    Args:
        runs: for each run's own folder its name and its arguments for ``main_spiral``.
        every: steps between two measurements.

    Raises:
        ValueError: the quick loop cannot do what a run's config says.
    """
    from experiments.quick import check

    missing = {folder: run for folder, run in runs.items() if not (folder / CURVE).is_file()}
    for _, arguments in missing.values():
        check(compose_run(arguments))
    if missing:
        _train(missing, every)
    return [Curve.from_dict(json.loads((folder / CURVE).read_text("utf-8"))) for folder in runs]


def _train(runs: Mapping[Path, tuple[str, Sequence[str]]], every: int) -> None:
    from recipe.spiral.main_spiral import provide_model

    for _, arguments in runs.values():
        provide_model(compose_run(arguments))  # made once, not by each process
    code = current_commit()  # the code of the processes, which all start now
    workers = min(len(os.sched_getaffinity(0)), len(runs))
    print(f"{len(runs)} runs, {workers} at a time", flush=True)
    with (
        # a killed parent can't stop them, and a run takes minutes
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent) as pool,
        ExitStack() as following,
    ):
        for folder, (name, _) in runs.items():
            (folder / LOG).unlink(missing_ok=True)  # of a run that was stopped: it begins anew
            following.enter_context(Follow(folder, partial(_show, name)))
        started = {
            pool.submit(_run, list(arguments), every, folder): (folder, name)
            for folder, (name, arguments) in runs.items()
        }
        try:
            for number, future in enumerate(as_completed(started), 1):
                folder, name = started[future]
                curve = Curve.from_dict(future.result())
                add_commit(folder, code, anew=True)
                write_whole(folder / CURVE, json.dumps(asdict(curve), allow_nan=False) + "\n")
                _show(name, f"finished after {duration(curve.seconds)}; {number} of {len(runs)} runs are finished")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _show(name: str, line: str) -> None:
    print(f"[{name}] {line}", flush=True)


def _run(arguments: list[str], every: int, folder: Path) -> dict[str, Any]:
    """One run, in a process of its own; returns its curve as a dict."""
    import torch
    from transformers.utils import logging

    from experiments.quick import run

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    config = compose_run(arguments)
    folder.mkdir(parents=True, exist_ok=True)

    def write_line(point: Point) -> None:
        shown = {key: value for key, value in point.measures.items() if not key.endswith((": draw", ": invalid"))}
        figures = ", ".join(f"{key} {value:.3f}" for key, value in shown.items())
        with (folder / LOG).open("a", encoding="utf-8") as log:
            log.write(f"step {point.step}/{config.trainer.total_training_steps}, {point.games:,} games: {figures}\n")

    started = time.monotonic()
    curve = run(config, every, folder / MODEL, write_line)
    return asdict(replace(curve, seconds=time.monotonic() - started))
