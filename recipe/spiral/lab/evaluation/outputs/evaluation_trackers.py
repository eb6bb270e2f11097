"""The results of a run's checkpoints in its own trackers, beside its curves: ``eval/...`` at each checkpoint's step.

``logged.json`` in the evaluation's folder says what was logged, so that an evaluation that goes on logs what is new.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from omegaconf import OmegaConf

from ....processes.launch import tracker_environment
from ....storage.checkpoints import config_file
from ....storage.disk import write_whole
from ....storage.run_config import load_config
from ..policies.evaluated_policy import Policy
from .points import OUTCOMES, rows_of
from .results import RESULTS

LOGGED = "logged.json"


def log_results(
    folder: Path,
    policies: Sequence[Policy],
    loggers: Sequence[str] | None,
    show: Callable[[str], None],
    whole: Path | None = None,
) -> None:
    """Log what ``results.json`` has of each run's checkpoints. A tracker that fails is told of, and ends nothing.

    ``loggers`` are as ``trainer.logger``; None: the run's own. ``whole`` is ``Settings.whole``; None: ``folder``.
    """
    runs = {policy.run: run_dir for policy in policies if policy.run and (run_dir := _run_dir(policy)) is not None}
    if (loggers is not None and not loggers) or not runs:
        return
    results = json.loads((folder / f"{RESULTS}.json").read_text(encoding="utf-8"))
    done: dict[str, dict[str, float]] = {}
    with suppress(OSError, ValueError):
        done = dict(json.loads((folder / LOGGED).read_text(encoding="utf-8")))
    for run, run_dir in runs.items():
        try:
            by_step = metrics_of(results, run)
            new = {step: values for step, values in by_step.items() if done.get(f"{run} {step}") != values}
            trainer = OmegaConf.select(load_config(config_file(run_dir)), "trainer") or {}
            wanted = trainer.get("logger") if loggers is None else loggers
            named = [wanted] if isinstance(wanted, str) else wanted or []
            trackers = [str(name) for name in named if name != "console"]
            if not new or not trackers:
                continue
            # In the run's folder, and as one run of theirs, however often the evaluation goes on.
            number = hashlib.blake2b(f"{run_dir}\0{whole or folder}".encode(), digest_size=8).hexdigest()
            variables = tracker_environment(run_dir) | {"WANDB_RUN_ID": number, "WANDB_SILENT": "true"}
            with patch.dict(os.environ, variables):
                _log(str(trainer.get("project_name")), f"{trainer.get('experiment_name')}-eval", trackers, new)
            done |= {f"{run} {step}": values for step, values in new.items()}
            steps = ", ".join(map(str, sorted(new)))
            show(f"{run}: the results at step {steps} are in {', '.join(trackers)}, below eval/")
        except Exception as error:  # trackers raise anything, and the results are written
            show(f"{run}: its trackers did not take the results ({type(error).__name__}: {error})")
    write_whole(folder / LOGGED, json.dumps(done) + "\n")


def _log(project: str, name: str, trackers: list[str], by_step: Mapping[int, Mapping[str, float]]) -> None:
    from verl.utils.tracking import Tracking

    tracking = Tracking(project, name, trackers)
    others = [tracker for tracker in tracking.logger if tracker != "wandb"]
    if (run := tracking.logger.get("wandb")) is not None:
        run.define_metric("eval/*", step_metric="eval/step")
    for step, values in sorted(by_step.items()):
        tracking.log(values, step, others)
        if run is not None:  # which drops what comes at an earlier step of its own
            run.log({**values, "eval/step": step})
    tracking.finish()
    if (wandb := sys.modules.get("wandb")) is not None:
        wandb.teardown()  # its process, which it would wait for as Python ends: the command has ended all by then


def metrics_of(results: Mapping[str, Any], run: str) -> dict[int, dict[str, float]]:
    """What is logged of a run's checkpoints, by step.

    ``eval/{game}/{nash_conv,value,illegal}``, ``eval/{game}/{optimal,critical,optimal_against_random}``,
    ``eval/{opponent}/{game}/p{role}/{win,draw,loss,invalid,reward}``, ``eval/{benchmark}/{avg,maj,pass}@{k}``.
    """
    metrics: defaultdict[int, dict[str, float]] = defaultdict(dict)
    for kind, step, row in rows_of(results, run):
        place = row.get("game") or row["benchmark"]
        if kind == "exploitability":
            values = {"nash_conv": row["nash_conv"], "value": row["value"], "illegal": row["illegal"][0]}
        elif kind == "optimality":
            values = {"optimal": row["all"]["share"], "critical": row["all"]["critical"]}
            values["optimal_against_random"] = row["against_random"]["share"]
        elif kind == "results":
            place = f"{row['opponent']}/{row['game']}/p{row['role']}"
            values = {name: row[name]["value"] for name in (*OUTCOMES, "reward")}
        else:
            values = {f"pass@{k}": rate["value"] for k, rate in row["pass_at"].items()}
            values |= {f"{name}@{row['samples']}": row[name]["value"] for name in ("avg", "maj")}
        metrics[step] |= {f"eval/{place}/{name}": value for name, value in values.items() if value is not None}
    return dict(metrics)


def _run_dir(policy: Policy) -> Path | None:
    """The folder of the run whose snapshot a policy is."""
    place = Path(str(policy.identity.get("path", "")))
    return next((folder for folder in (place, *place.parents[:3]) if config_file(folder).is_file()), None)
