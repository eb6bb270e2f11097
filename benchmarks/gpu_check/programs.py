"""Runs the recipe's programs as a user does, and reads what a training leaves in its folder."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

from .probe import Probe
from .settings import HARDWARE

#: verl's names of what it measures of the engine's probabilities against the trainer's.
PROBABILITIES = {
    "correlation": "training/rollout_actor_probs_pearson_corr",
    "mean difference": "training/rollout_probs_diff_mean",
    "largest difference": "training/rollout_probs_diff_max",
}


def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a program of the recipe; what it prints comes into the stage's log."""
    print(f"$ python -m recipe.spiral.{module} {' '.join(arguments)}", flush=True)
    return subprocess.Popen([sys.executable, "-m", f"recipe.spiral.{module}", *arguments])


class Training:
    """A training run of this stage, with Hydra's overrides."""

    def __init__(self, probe: Probe, overrides: Sequence[str], name: str = "run") -> None:
        self.probe, self.folder = probe, probe.work / name
        self._arguments = [
            f"run_dir={self.folder}",
            f"hardware={HARDWARE[probe.device]}",
            "trainer.logger=[file]",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "ray_kwargs.ray_init.log_to_driver=true",
            *overrides,
        ]

    def run(self, name: str = "the run") -> None:
        """Train to the end; StageFailed if it fails."""
        begin, process = time.time(), start("main_spiral", *self._arguments)
        try:
            status = process.wait()
        finally:
            self._note(begin)
        self.probe.need(f"{name} ends well", status == 0, f"exit status {status}")

    def kill_in(self, step: int) -> None:
        """Start, and send SIGKILL after this step; StageFailed if it ended before."""
        process = start("main_spiral", *self._arguments)
        while process.poll() is None and len(self.steps()) < step:
            time.sleep(0.2)
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.probe.need(f"the run reaches step {step}", not ended)

    def steps(self) -> list[dict[str, Any]]:
        """The metrics of each step, with its number and its time, in their order."""
        file = self.folder / "metrics.jsonl"
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.is_file() else []
        found = [{"number": line["step"], "time": line["time"], **line["metrics"]} for line in lines]
        return [step for step in found if "timing_s/step" in step]

    def probabilities(self) -> dict[str, list[float]]:
        """Engine against trainer, of each step: what ``PROBABILITIES`` names."""
        steps = self.steps()
        return {name: [s[key] for s in steps if s.get(key) is not None] for name, key in PROBABILITIES.items()}

    def check_steps(self, last: int) -> None:
        """Check that each step is there, with a gradient that is finite."""
        good = {step["number"] for step in self.steps() if step.get("actor/grad_norm") is not None}
        wrong = sorted(set(range(1, last + 1)) - good)
        self.probe.check(f"{last} steps with finite gradients", not wrong, f"wrong: {wrong}" if wrong else "")

    def _note(self, begin: float) -> None:
        """Note what was measured until now, also of a run that is ended before its end."""
        steps = self.steps()
        timed = [seconds_of(step) for step in steps]
        if not (fresh := [step for step in steps if step["time"] > begin]):
            return
        first = fresh[0]["time"] - fresh[0]["timing_s/step"] - begin
        self.probe.figure("seconds from the call to the first step", round(first, 1))
        self.probe.figure("seconds of the first step", timed[0])
        later = timed[1:] or timed
        names = sorted({name for step in later for name in step})
        medians = {name: statistics.median(step.get(name, 0.0) for step in later) for name in names}
        self.probe.figure("seconds of a step", medians)
        self.probe.figure("probabilities", self.probabilities())


def seconds_of(step: dict[str, Any]) -> dict[str, float]:
    """Seconds of each phase of a step, by verl's names; ``step`` is all of it."""
    timers = {name.removeprefix("timing_s/"): value for name, value in step.items() if "timing_s/" in name}
    return {name: value for name, value in timers.items() if value is not None}


def tools(probe: Probe, *calls: tuple[str, str, list[str]]) -> None:
    """Check that programs, which run side by side, end with status 0; each a check's name, a module and arguments."""
    started = [(name, start(module, *arguments)) for name, module, arguments in calls]
    for name, process in started:
        status = process.wait()
        probe.check(name, status == 0, f"exit status {status}")
