"""A run that is started to be measured, and what any run has logged of its steps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from recipe.spiral.storage.run_files import METRICS, Logged, read_metrics

ROOT = Path(__file__).resolve().parents[1]
#: Overrides for a run that does nothing but train.
ONLY_STEPS = ("trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=-1", "trainer.logger=[file]")


def quickstart(run_dir: Path, *overrides: str) -> None:
    """Train as in the quick start. Raises CalledProcessError: it failed; TimeoutExpired: it took half an hour."""
    settings = ["+experiment=quickstart", f"run_dir={run_dir}", *ONLY_STEPS, *overrides]
    subprocess.run([sys.executable, "-m", "recipe.spiral.main_spiral", *settings], cwd=ROOT, timeout=1800, check=True)


def steps_of(run_dir: Path) -> list[Logged]:
    """What was logged of each step, in their order."""
    return [logged for logged, _ in read_metrics(run_dir / METRICS) if logged.metrics.get("timing_s/step")]


def seconds_of(step: Logged) -> dict[str, float]:
    """Seconds of each phase of a step, by verl's names; ``step`` is all of it."""
    timers = {name.removeprefix("timing_s/"): value for name, value in step.metrics.items() if "timing_s/" in name}
    return {name: value for name, value in timers.items() if value is not None}


def begin_of(step: Logged) -> float:
    """When it began, in seconds since 1970."""
    return step.time - seconds_of(step)["step"]
