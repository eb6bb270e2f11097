"""Runs the recipe's programs as a user does, and reads what a training leaves in its folder."""

from __future__ import annotations

import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.processes.terminal import LOG
from recipe.spiral.storage.metrics_file import METRICS, Logged, read_metrics

from .probe import Probe
from .settings import HARDWARE

#: A run's own files whose ends are shown when it fails.
_LOGS = ("libraries.log", "failure.txt")
#: verl's names of what it measures of the engine's probabilities against the trainer's.
PROBABILITIES = {
    "correlation": "training/rollout_actor_probs_pearson_corr",
    "largest difference": "training/rollout_probs_diff_max",
    "mean difference": "training/rollout_probs_diff_mean",
}


def start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a program of the recipe; what it prints comes into the stage's log."""
    print(f"$ python -m {module} {' '.join(arguments)}", flush=True)
    return subprocess.Popen([sys.executable, "-m", module, *arguments], preexec_fn=end_with_parent)


def run(module: str, *arguments: str) -> int:
    """Run a program of the recipe; returns its exit status."""
    return start(module, *arguments).wait()


class Training:
    """A training run of this stage.

    Args:
        probe: the stage's.
        name: of its folder.
        overrides: Hydra's.
    """

    def __init__(self, probe: Probe, name: str, overrides: Sequence[str]) -> None:
        self.probe, self.folder = probe, probe.work / name
        self._arguments = [
            f"run_dir={self.folder}",
            f"hardware={HARDWARE[probe.device]}",
            "trainer.logger=[file]",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "verbose=true",
            *overrides,
        ]

    def run(self, name: str = "the run") -> None:
        """Train to the end.

        Raises:
            StageFailed: it failed.
        """
        status = run("recipe.spiral.main_spiral", *self._arguments)
        if status:
            self.show_logs()
        self.probe.need(f"{name} ends well", status == 0, f"exit status {status}")

    def kill_in(self, step: int) -> None:
        """Start, and send SIGKILL after the line of this step.

        Raises:
            StageFailed: it ended before.
        """
        process = start("recipe.spiral.main_spiral", *self._arguments)
        while process.poll() is None and self.steps_shown() < step:
            time.sleep(0.2)
        ended = process.poll()
        process.send_signal(signal.SIGKILL)
        process.wait()
        if ended is not None:
            self.show_logs()
        self.probe.need(f"the run reaches step {step}", ended is None, "" if ended is None else f"exit status {ended}")

    def steps_shown(self) -> int:
        log = self.folder / LOG
        return sum(line.startswith("step ") for line in log.read_text().splitlines()) if log.is_file() else 0

    def log(self) -> str:
        return (self.folder / LOG).read_text()

    def steps(self) -> list[Logged]:
        """What was logged of each step, in their order."""
        logged = [logged for logged, _ in read_metrics(self.folder / METRICS)]
        return [step for step in logged if "timing_s/step" in step.metrics]

    def show_logs(self) -> None:
        for name in _LOGS:
            if (file := self.folder / name).is_file():
                print(f"-- {name}", *file.read_text(errors="replace").splitlines()[-100:], sep="\n", flush=True)

    def probabilities(self) -> dict[str, list[float]]:
        """Engine against trainer, of each step: what ``PROBABILITIES`` names."""
        found = {name: [step.metrics.get(metric) for step in self.steps()] for name, metric in PROBABILITIES.items()}
        return {name: [value for value in values if value is not None] for name, values in found.items()}

    def check_steps(self, last: int) -> None:
        """Check that each step is there, with a gradient that is finite."""
        good = {step.step for step in self.steps() if step.metrics.get("actor/grad_norm") is not None}
        wrong = sorted(set(range(1, last + 1)) - good)
        self.probe.check(f"{last} steps with finite gradients", not wrong, f"wrong: {wrong}" if wrong else "")

    def seconds(self) -> dict[str, float]:
        """Median seconds of each phase, without the first step, in which much is done once."""
        steps = [seconds_of(step) for step in self.steps()[1:]]
        names = sorted({name for step in steps for name in step})
        return {name: statistics.median(step.get(name, 0.0) for step in steps) for name in names}


def seconds_of(step: Logged) -> dict[str, float]:
    """Seconds of each phase of a step, by verl's names; ``step`` is all of it."""
    timers = {name.removeprefix("timing_s/"): value for name, value in step.metrics.items() if "timing_s/" in name}
    return {name: value for name, value in timers.items() if value is not None}


def tool(probe: Probe, name: str, module: str, *arguments: str) -> None:
    """Check that a program ends with status 0."""
    status = run(module, *arguments)
    probe.check(name, status == 0, f"exit status {status}")
