"""Runs stages, each in a process of its own (``main``): its output into its log, its end in time, nothing left."""

from __future__ import annotations

import ctypes
import json
import os
import pkgutil
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from recipe.spiral import __version__
from recipe.spiral.processes.launch import end_with_parent

from .report import ROOT, Report, Result
from .stages import ENDED, FAILED, NOTED, PASSED, SKIPPED, Probe, Stage

#: Seconds in which a stage cleans up after itself when its time is over.
PATIENCE = 10.0
#: What every stage is run with: nothing is asked for over the network.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
_SET_CHILD_SUBREAPER = 36


def run(stages: Sequence[Stage], report: Report, end: float = float("inf"), lanes: int = 1) -> None:
    """Run stages, and write the result of each when it ends.

    Args:
        stages: which, in their order. One that has less time left than its least is not begun, nor is any after a vital
            one that has not passed; that is its result.
        report: where they and their logs go.
        end: when all of them must be over, by ``time.monotonic``.
        lanes: how many run side by side.
    """
    adopt_orphans()
    waiting, running, broken = list(stages), list[_Running](), ""
    try:
        while waiting or running:
            while waiting and _has_room(running, waiting[0], lanes):
                stage = waiting.pop(0)
                # side by side, those that measure speed come last, and are left the time that they need
                later = sum(other.least for other in waiting if other.alone) if lanes > 1 and not stage.alone else 0
                left = max(end - PATIENCE - later - time.monotonic(), 0)
                if not broken and left >= stage.least:
                    running.append(_Running(stage, report, min(stage.limit, left)))
                else:
                    why = broken or f"{left:.0f} s left, it needs {stage.least:.0f}"
                    report.write(Result(stage.name, ENDED, f"not begun: {why}"))
            time.sleep(0.1)
            for one in [each for each in running if each.is_over()]:
                running.remove(one)
                end_children(but=[other.process.pid for other in running])
                result = report.write(one.result())
                if one.stage.vital and result.status != PASSED:
                    broken = f"{result.name} {result.status}"
    finally:
        for one in running:
            one.stop("interrupted")
            report.write(one.result())
        end_children()


def _has_room(running: Sequence[_Running], stage: Stage, lanes: int) -> bool:
    """Whether a stage may begin beside those that run."""
    return not running or (len(running) < lanes and not stage.alone and not running[0].stage.alone)


class _Running:
    """A stage that runs, for so many seconds at most."""

    def __init__(self, stage: Stage, report: Report, seconds: float) -> None:
        self.stage, self._report, self._seconds = stage, report, seconds
        self._begin, self._stopped = time.monotonic(), ""
        self._work = report.folder / "work" / stage.name
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        with (self._work / "log").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, stage.function, report.device, str(self._work)],
                cwd=ROOT,
                env=os.environ | ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_over(self) -> bool:
        """Whether it has ended. It is stopped when its time is over."""
        if self.process.poll() is None and time.monotonic() > self._begin + self._seconds:
            self.stop(f"its {self._seconds:.0f} s were over")
        return self.process.poll() is not None

    def stop(self, why: str) -> None:
        """Interrupt it, and kill it if that is not enough."""
        self._stopped = why
        self.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(PATIENCE)
        self.process.kill()
        self.process.wait()

    def result(self) -> Result:
        """How it ended; its folder goes."""
        lines, file = self._report.log(self.stage.name, self._work / "log"), self._work / NOTED
        nothing: dict[str, Any] = {"checks": [], "figures": {}, "skipped": ""}
        noted = json.loads(file.read_bytes()) if file.is_file() else nothing
        shutil.rmtree(self._work, ignore_errors=True)
        code, checks = self.process.returncode, noted["checks"]
        passed = f"{sum(check['status'] == PASSED for check in checks)} checks passed"
        failed = [f"{check['name']}: {check['detail']}".strip(": ") for check in checks if check["status"] == FAILED]
        if failed:
            status, line = FAILED, failed[0]
        elif code == 0:
            status, line = (SKIPPED, noted["skipped"]) if noted["skipped"] else (PASSED, passed)
        elif self._stopped:
            status, line = ENDED, f"{passed}, then {self._stopped}"
        else:
            status, line = FAILED, f"exit status {code}; it printed last: {lines[-1] if lines else 'nothing'}"
        took, tail = round(time.monotonic() - self._begin, 1), lines[-40:] if status in (FAILED, ENDED) else []
        return Result(self.stage.name, status, line, took, checks, noted["figures"], tail)


def adopt_orphans() -> None:
    """From now on, what a process below this one leaves becomes a child of this one (Linux's prctl)."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(but: Collection[int] = ()) -> None:
    """Kill what runs below this process, but for these children and what is below them."""
    while children := [child for child in psutil.Process().children() if child.pid not in but and is_alive(child)]:
        for child in children:
            with suppress(psutil.Error):
                child.kill()
                child.wait(5)


def is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def main(function: str, device: str, work: str) -> None:
    """A stage's own process; what it started has ended when it ends, and it ends when its parent is gone."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell lets its background jobs ignore it
    end_with_parent(signal.SIGINT)
    adopt_orphans()
    probe = Probe(device, Path(work))
    # of each stage, as one that is kept may be of an earlier commit
    now, commit = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), subprocess.getoutput("git rev-parse HEAD")
    probe.figure("project", f"{__version__}, commit {commit}, {now}")
    try:
        with probe.attempt("the stage goes to its end"):
            pkgutil.resolve_name(function)(probe)
    finally:
        end_children()


if __name__ == "__main__":
    main(*sys.argv[1:])
