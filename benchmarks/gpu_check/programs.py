"""Runs the recipe's programs as a user does, and reads what a training leaves in its folder."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from recipe.spiral.processes.launch import end_with_parent
from recipe.spiral.processes.run_log import LOG
from recipe.spiral.storage.metrics_file import METRICS, Logged, read_metrics

from .probe import Probe, StageFailed
from .settings import HARDWARE

#: A run's own files whose ends are shown when it fails.
_LOGS = ("libraries.log", "engine-*.log", "failure.txt")
#: verl's names of what it measures of the engine's probabilities against the trainer's.
PROBABILITIES = {
    "correlation": "training/rollout_actor_probs_pearson_corr",
    "largest difference": "training/rollout_probs_diff_max",
    "mean difference": "training/rollout_probs_diff_mean",
}

#: The games of a run that is held before its first step, and the variable that names the file for which it waits.
HELD_GAMES = ("data.custom_cls.path=pkg://benchmarks.gpu_check.held",)
HELD = "GPU_CHECK_HELD"


def ready(file: Path) -> Path:
    """Beside the file for which a run waits: the one that says that it is ready."""
    return file.with_suffix(".ready")


def start(module: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a program of the recipe; what it prints comes into the stage's log."""
    print(f"$ python -m {module} {' '.join(arguments)}", flush=True)
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments], env={**os.environ, **environment}, preexec_fn=end_with_parent
    )


class Training:
    """A training run of this stage.

    Args:
        probe: the stage's.
        name: of its folder.
        overrides: Hydra's.
    """

    def __init__(self, probe: Probe, name: str, overrides: Sequence[str]) -> None:
        self.probe, self.folder = probe, probe.work / name
        self._go = probe.work / f"{name}.go"
        self._calls: list[float] = []
        self._arguments = [
            f"run_dir={self.folder}",
            f"hardware={HARDWARE[probe.device]}",
            "trainer.logger=[file]",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "verbose=true",
            *overrides,
        ]

    def run(self, name: str = "the run", meanwhile: Callable[[], object] = lambda: None) -> None:
        """Train to the end, and do something else meanwhile.

        Raises:
            StageFailed: it failed.
        """
        self.start()
        meanwhile()
        if not self.ends_well(name):
            raise StageFailed(f"{name} failed")

    def start(self, held: bool = False) -> None:
        """Start; if it is to be held, it takes its first step after ``go``."""
        held_by = {HELD: str(self._go)} if held else {}
        games = HELD_GAMES if held else ()
        self._calls.append(time.time())
        self._process = start("recipe.spiral.main_spiral", *self._arguments, *games, **held_by)

    def wait_until_ready(self, seconds: float) -> bool:
        """Wait until it is held before its first step; returns whether it is."""
        end = time.monotonic() + seconds
        while not (is_ready := ready(self._go).exists()) and self._process.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
        return is_ready

    def go(self) -> None:
        self._go.touch()

    def ends_well(self, name: str = "the run") -> bool:
        """Wait for its end, and check its exit status."""
        try:
            status = self._process.wait()
        finally:
            self.note()
        if status:
            self.show_logs()
        return self.probe.check(f"{name} ends well", status == 0, f"exit status {status}")

    def kill_in(self, step: int) -> None:
        """Start, and send SIGKILL after the line of this step.

        Raises:
            StageFailed: it ended before.
        """
        self.start()
        process = self._process
        try:
            while process.poll() is None and self.steps_shown() < step:
                time.sleep(0.2)
        finally:
            self.note()
        ended = process.poll()
        process.send_signal(signal.SIGKILL)
        process.wait()
        if ended is not None:
            self.show_logs()
        self.probe.need(f"the run reaches step {step}", ended is None, "" if ended is None else f"exit status {ended}")

    def note(self) -> None:
        """Note what was measured until now, also of a run that is ended before its end."""
        if not (steps := self.steps()):
            return
        held = ready(self._go)
        begun = [held.stat().st_mtime] if held.exists() else [step.time - seconds_of(step)["step"] for step in steps]
        first = [round(at - call, 1) for call in self._calls for at in [later for later in begun if later > call][:1]]
        kl = [value for step in steps if (value := step.metrics.get("actor/kl_loss")) is not None]
        noted = {
            "seconds from the call to the first step": first,
            "seconds of the first step": seconds_of(steps[0]),
            "seconds of a step": self.seconds(),
            "KL to the reference by step": [round(abs(value), 6) for value in kl] or "none",
            "probabilities": self.probabilities(),
        }
        self.probe.figure(self.folder.name, noted)

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
            for file in sorted(self.folder.glob(name)):
                print(f"-- {file.name}", *file.read_text(errors="replace").splitlines()[-100:], sep="\n", flush=True)

    def probabilities(self) -> dict[str, list[float]]:
        """Engine against trainer, of each step: what ``PROBABILITIES`` names."""
        found = {name: [step.metrics.get(metric) for step in self.steps()] for name, metric in PROBABILITIES.items()}
        return {name: [value for value in values if value is not None] for name, values in found.items()}

    def check_steps(self, last: int, name: str = "") -> None:
        """Check that each step is there, with a gradient that is finite; ``name`` begins the check's."""
        good = {step.step for step in self.steps() if step.metrics.get("actor/grad_norm") is not None}
        wrong = sorted(set(range(1, last + 1)) - good)
        self.probe.check(f"{name}{last} steps with finite gradients", not wrong, f"wrong: {wrong}" if wrong else "")

    def seconds(self) -> dict[str, float]:
        """Median seconds of each phase, without the first step, in which much is done once."""
        steps = [seconds_of(step) for step in self.steps()[1:]]
        names = sorted({name for step in steps for name in step})
        return {name: statistics.median(step.get(name, 0.0) for step in steps) for name in names}


def seconds_of(step: Logged) -> dict[str, float]:
    """Seconds of each phase of a step, by verl's names; ``step`` is all of it."""
    timers = {name.removeprefix("timing_s/"): value for name, value in step.metrics.items() if "timing_s/" in name}
    return {name: value for name, value in timers.items() if value is not None}


def tools(probe: Probe, *calls: tuple[str, str, list[str]]) -> None:
    """Check that programs, which run side by side, end with status 0; each a check's name, a module and arguments."""
    started = [(name, start(f"recipe.spiral.{module}", *arguments)) for name, module, arguments in calls]
    for name, process in started:
        status = process.wait()
        probe.check(name, status == 0, f"exit status {status}")
