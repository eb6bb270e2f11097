"""Compares verl's trainer modes: ``python -m experiments.modes [overrides]``.

One run of ``main_spiral`` for each mode, one after the other on the same machine, with the same seed and as many games.
Speed, idle shares and staleness come from the runs' metrics, NashConv from their validations. Other programs on the
machine make a run slower, so the cores that they used meanwhile are noted, too.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil
from omegaconf import OmegaConf

from experiments.command import Failed, run_experiment
from experiments.result import ROOT, Result, command_line, current_commit, weights_digest
from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.storage.metrics_file import METRICS, Logged, read_metrics

NAME, MODULE = "modes", "experiments.modes"
TITLE = "The three trainer modes at one-round Kuhn poker: speed, idle time and NashConv"
#: In a run's folder, when it is finished: the commit, and the cores that others used.
NOTES = "notes.json"
NASH_CONV = "val-core/KuhnPoker/nash_conv"
#: What the page shows of a mode: the mean over its steps.
MEANS = ("async/versions_in_a_game",)


def run(config: Mapping[str, Any], overrides: Sequence[str]) -> Result:
    """Train what is not trained yet, and put the result together.

    Raises:
        Failed: a run failed.
    """
    folders = {mode: _folder(mode, config) for mode in config["modes"]}
    for mode, folder in folders.items():
        if not (folder / NOTES).is_file():
            train(mode, folder, config)
    notes = {mode: json.loads((folder / NOTES).read_text(encoding="utf-8")) for mode, folder in folders.items()}
    logged = {mode: [line for line, _ in read_metrics(folder / METRICS)] for mode, folder in folders.items()}
    models = {str(OmegaConf.load(folder / "config.yaml").actor_rollout_ref.model.path) for folder in folders.values()}
    rows = [row(mode, lines, config) | {"others": notes[mode]["others"]} for mode, lines in logged.items()]
    return Result(
        name=NAME,
        title=TITLE,
        command=command_line(MODULE, overrides),
        commit=", ".join(dict.fromkeys(note["commit"] for note in notes.values())),
        seeds=(int(config["seed"]),),
        games=sum(each["games"] for each in rows),
        minutes=round(sum(each["minutes"] for each in rows), 1),
        settings={key: value for key, value in config.items() if key not in ("work", "output", "limit")},
        rows=rows,
        figures={
            "curves": {mode: curve(lines, config["games"]) for mode, lines in logged.items()},
            "staleness": {mode: staleness(steps_of(lines, config["skip"])) for mode, lines in logged.items()},
            "models": sorted(map(weights_digest, models)),
        },
    )


def _folder(mode: str, config: Mapping[str, Any]) -> Path:
    """Where a run is kept; other settings are another folder."""
    settings = [config[key] for key in ("seed", "steps", "games", "every", "overrides")]
    digest = hashlib.sha256(json.dumps([*settings, config["modes"][mode]]).encode()).hexdigest()[:8]
    return Path(config["work"]).absolute() / f"{mode}-{digest}"


def train(mode: str, folder: Path, config: Mapping[str, Any]) -> None:
    """One run, from its start to its end.

    Raises:
        Failed: it failed, or took too long.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / METRICS).unlink(missing_ok=True)  # of a run that was stopped: it begins anew, and so do its metrics
    own = [
        f"trainer.v1.trainer_mode={mode}",
        f"seed={config['seed']}",
        f"trainer.total_training_steps={config['steps']}",
        f"data.train_batch_size={config['games']}",
        f"trainer.test_freq={config['every']}",
        "trainer.save_freq=-1",
        "trainer.resume_mode=disable",
        "trainer.logger=[console]",
        f"run_dir={folder}",
    ]
    command = [sys.executable, "-m", "recipe.spiral.main_spiral", *config["overrides"], *own, *config["modes"][mode]]
    print(f"{mode}: {folder / 'output.txt'}", flush=True)
    commit = current_commit()
    with (folder / "output.txt").open("w") as output:
        # one thread each, so that engine and learner have a core each where they work at the same time
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, preexec_fn=end_with_parent
        )
        others = _cores_of_others(process, folder / METRICS, time.monotonic() + float(config["limit"]))
    if process.returncode != 0:
        raise Failed(f"{mode} ended with status {process.returncode}: see {folder / 'output.txt'}")
    (folder / NOTES).write_text(json.dumps({"commit": commit, "others": others}) + "\n", encoding="utf-8")


def _cores_of_others(process: subprocess.Popen[bytes], metrics: Path, end: float) -> float:
    """Wait for a run's end; returns how many cores all other processes used on average, from its first metrics on."""
    known: dict[int, float] = {}
    began: tuple[float, float, float] | None = None
    last = (0.0, 0.0, 0.0)
    while process.poll() is None:
        if time.monotonic() > end:
            process.terminate()  # which ends its Ray as well
        try:
            for one in psutil.Process(process.pid).children(recursive=True):
                times = one.cpu_times()
                known[one.pid] = times.user + times.system
        except psutil.NoSuchProcess:
            continue
        whole = psutil.cpu_times()
        last = (time.monotonic(), sum(whole) - whole.idle - whole.iowait, sum(known.values()))
        if began is None and metrics.is_file():
            began = last
        time.sleep(0.5)
    seconds, busy, own = (after - before for after, before in zip(last, began or last, strict=True))
    return round(max(busy - own, 0.0) / seconds, 2) if seconds else 0.0


def steps_of(lines: Sequence[Logged], skip: int) -> list[dict[str, float]]:
    """The metrics of the steps after the first ones."""
    found = [line for line in lines if "timing_s/step" in line.metrics and line.step > skip]
    return [{name: value for name, value in line.metrics.items() if value is not None} for line in found]


def row(mode: str, lines: Sequence[Logged], config: Mapping[str, Any]) -> dict[str, Any]:
    """A mode's line of the table. Seconds of a step are without validation."""
    steps = steps_of(lines, config["skip"])
    seconds = [step["timing_s/step"] for step in steps]
    means = {name: fmean([step[name] for step in steps if name in step] or [0.0]) for name in MEANS}
    return {
        "mode": mode,
        "games": lines[-1].step * config["games"],
        "minutes": round((lines[-1].time - lines[0].time) / 60, 1),
        "step": median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "games_per_second": config["games"] * len(seconds) / sum(seconds),
        "staleness": fmean(step.get("async/staleness/mean", 0.0) for step in steps),
        **means,
        NASH_CONV: lines[-1].metrics[NASH_CONV],
    }


def curve(lines: Sequence[Logged], games: int) -> list[dict[str, float]]:
    """NashConv by games and by seconds since the first validation; those of later validations count."""
    return [
        {"games": line.step * games, "seconds": round(line.time - lines[0].time, 1), "nash_conv": value}
        for line in lines
        if (value := line.metrics.get(NASH_CONV)) is not None
    ]


def staleness(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The share of the trained games with each staleness."""
    shares = {str(age): fmean(step.get(f"async/staleness/{age}", 0.0) for step in steps) for age in range(9)}
    return {age: share for age, share in shares.items() if share} or {"0": 1.0}


if __name__ == "__main__":
    run_experiment(NAME, run)
