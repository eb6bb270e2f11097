"""The runs of an experiment by the quick loop: several at a time, each on one core; what is done is kept."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from experiments.commits import commit, note
from experiments.composed import compose_run
from experiments.curve import Course
from recipe.spiral.running.launch import end_with_parent
from recipe.spiral.storage.disk import write_whole

COURSE = "course.json"
#: The policy of a run's end, beside it.
MODEL = "model"


def courses(runs: Mapping[Path, tuple[str, Sequence[str]]], every: int) -> list[Course]:
    """Train and measure; returns what was measured, in the order of ``runs``.

    Args:
        runs: by the folder that is a run's own: its name, and its arguments for ``main_spiral``.
        every: steps between two measurements.

    Raises:
        ValueError: the quick loop cannot do what a run's config says.
    """
    from experiments.quick import check

    missing = {folder: run for folder, run in runs.items() if not (folder / COURSE).is_file()}
    for _, arguments in missing.values():
        check(compose_run(arguments))
    if missing:
        _train(missing, every)
    return [Course.from_dict(json.loads((folder / COURSE).read_text(encoding="utf-8"))) for folder in runs]


def _train(runs: Mapping[Path, tuple[str, Sequence[str]]], every: int) -> None:
    from recipe.spiral.main_spiral import provide_model

    for _, arguments in runs.values():
        provide_model(compose_run(arguments))  # made once, not by each process
    from tqdm import tqdm

    code = commit()  # that of the processes, which all begin now
    workers = min(len(os.sched_getaffinity(0)), len(runs))
    with (
        # a killed parent can't stop them, and a run goes on for minutes
        ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=end_with_parent) as pool,
        tqdm(total=len(runs), unit="run") as bar,
    ):
        started = {
            pool.submit(_one, list(arguments), every, folder / MODEL): (folder, name)
            for folder, (name, arguments) in runs.items()
        }
        try:
            for future in as_completed(started):
                folder, name = started[future]
                course = Course.from_dict(future.result())
                note(folder, code, anew=True)
                write_whole(folder / COURSE, json.dumps(course.to_dict(), allow_nan=False) + "\n")
                last = course.points[-1]
                told = {key: value for key, value in last.measures.items() if not key.endswith((": draw", ": invalid"))}
                figures = ", ".join(f"{key} {value:.3f}" for key, value in told.items())
                bar.write(f"{name}: {last.games:,} games in {course.seconds:.0f} s: {figures}", file=sys.stderr)
                bar.update()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _one(arguments: list[str], every: int, model: Path) -> dict[str, Any]:
    """One run, in a process of its own."""
    import torch
    from transformers.utils import logging

    from experiments.quick import run

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    started = time.monotonic()
    course = run(compose_run(arguments), every, model)
    return replace(course, seconds=time.monotonic() - started).to_dict()
