"""Counts the games of an asynchronous run that was killed, and audits its folder."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.storage import checkpoints
from recipe.spiral.storage.checkpoints import folder_of

LIMIT = 1800.0


def last_step(folder: Path) -> int:
    return max(RecordFolder(folder / "games").steps("train"), default=0)


def count(folder: Path) -> str:
    """Where each game of an asynchronous run is, by its number alone; returns "each once", or what is wrong."""
    saved = folder_of(folder)
    step = checkpoints.latest(saved)
    if step != last_step(folder):
        return f"the last checkpoint is of step {step}, and the last games are of step {last_step(folder)}"
    state = checkpoints.read_state(saved / f"global_step_{step}")
    batch = int(state["settings"]["data.train_batch_size"])
    places = Counter((block - 1) * batch + index for block, index, _ in state["in_flight"])
    for record in RecordFolder(folder / "games").read("train"):
        if record.discarded in (None, "stale"):  # others are played again, under the same number
            places[(record.key.step - 1) * batch + record.key.index] += 1
    lost, twice = set(range(max(places) + 1)) - places.keys(), [place for place, times in places.items() if times > 1]
    return f"{len(lost)} are lost, and {len(twice)} there more than once" if lost or twice else "each once"


def audit(folder: Path) -> str:
    """Audit a run's folder; returns "ok", or the last line of the audit."""
    command = [sys.executable, "-m", "recipe.spiral.audit", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return "ok" if done.returncode == 0 else f"exit {done.returncode}: {lines[-1] if lines else ''}"
