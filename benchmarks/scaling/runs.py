"""Makes the runs that costs are fitted to: the quick start's settings, without validation and checkpoints.

At the end of each step it notes how much CPU the run's processes have used so far. That says what a process costs also
where other work on the machine makes it wait.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import psutil

from benchmarks.processes import end_with_run
from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.storage.metrics_file import METRICS, read_metrics

ROOT = Path(__file__).resolve().parents[2]
#: A line for each step: its number, and seconds by the name of the process.
CPU = "cpu.jsonl"
OVERRIDES = ("+experiment=quickstart", "trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1",
             "trainer.logger=[console]")  # fmt: skip


def make(run_dir: Path, games: int, steps: int, seconds: float, overrides: Sequence[str] = ()) -> int:
    """Train so many steps of so many games, and end after so many seconds; returns the last step.

    Raises:
        ValueError: the folder is there already.
    """
    if run_dir.exists():
        raise ValueError(f"{run_dir}: is there already; remove it, or name another folder")
    run_dir.mkdir(parents=True)
    own = (f"data.train_batch_size={games}", f"trainer.total_training_steps={steps}", f"run_dir={run_dir.resolve()}")
    command = [sys.executable, "-m", "recipe.spiral.main_spiral", *OVERRIDES, *own, *overrides]
    # One thread each, so that engine and learner have a core each where they work at the same time.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0"}
    with (run_dir / "output.txt").open("w") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, preexec_fn=end_with_parent
        )
        end, last = time.monotonic() + seconds, 0
        while process.poll() is None and time.monotonic() < end:
            logged = [line.step for line, _ in read_metrics(run_dir / METRICS)]
            if logged and logged[-1] > last:
                last = logged[-1]
                with (run_dir / CPU).open("a") as lines:
                    lines.write(json.dumps({"step": last, "cpu": cpu_seconds(psutil.Process(process.pid))}) + "\n")
            time.sleep(0.05)
        process.terminate()  # which ends its Ray as well
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
    if not last:
        end_with_run(run_dir / "output.txt")
    return last


def cpu_seconds(parent: psutil.Process) -> dict[str, float]:
    """Of all processes below one that have a title, ``ray::SomeActor.method``, by the name in it."""
    seconds: Counter[str] = Counter()
    for child in parent.children(recursive=True):
        try:
            words, times = child.cmdline(), child.cpu_times()
        except psutil.NoSuchProcess:
            continue
        if words and "::" in words[0]:
            seconds[words[0].split("::")[1].split(".")[0].split(" ")[0]] += times.user + times.system
    return {name: round(value, 2) for name, value in sorted(seconds.items())}


def cpu_of_steps(run_dir: Path) -> dict[int, dict[str, float]]:
    """What each step used, by step; {} where nobody noted it."""
    file = run_dir / CPU
    if not file.is_file():
        return {}
    noted = [json.loads(line) for line in file.read_text().splitlines()]
    return {
        after["step"]: {name: used - before["cpu"].get(name, 0.0) for name, used in after["cpu"].items()}
        for before, after in pairwise(noted)
        if after["step"] == before["step"] + 1
    }
