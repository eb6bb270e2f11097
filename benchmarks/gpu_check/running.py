"""Runs stages, each in a process of its own (``main``): its output into its log, its end in time, nothing left."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from recipe.spiral import __version__

from .report import ROOT, Report, Result
from .stages import ENDED, FAILED, NOTED, PASSED, SKIPPED, Probe, SkipStage, Stage, StageFailed

#: Exit statuses of a stage's process: all passed; it could not go on; skipped; checks failed, and it went to its end;
#: interrupted.
STATUS = {0: PASSED, 1: FAILED, 3: SKIPPED, 4: FAILED, 130: ENDED}
#: Seconds in which a stage cleans up after itself when its time is over.
PATIENCE = 10.0
#: What every stage is run with: nothing is asked for over the network.
OFFLINE = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_DATASETS_OFFLINE", "VLLM_NO_USAGE_STATS"), "1"),
    "WANDB_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "PYTHONUNBUFFERED": "1",
}
_SET_CHILD_SUBREAPER = 36


def run(stages: Sequence[Stage], report: Report, end: float | None = None, most: int = 1) -> Iterator[Result]:
    """Run stages; their results come as they end, masked and written.

    Args:
        stages: which, in their order. One that has less time left than its least is not begun, which is its result.
        report: where they and their logs go.
        end: when all of them must be over, by ``time.monotonic``; None: never.
        most: how many run side by side.
    """
    adopt_orphans()
    waiting, running = list(stages), list[_Running]()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                stage = waiting.pop(0)
                left = float("inf") if end is None else max(end - PATIENCE - time.monotonic(), 0)
                if left < stage.least:
                    why = f"not begun: {left:.0f} s left, it needs {stage.least:.0f}"
                    yield report.write(Result(stage.name, report.device, ENDED, why, 0, 0))
                else:
                    running.append(_Running(stage, report, min(stage.limit, left)))
            for one in [each for each in running if each.is_over()]:
                running.remove(one)
                end_children(but=[other.process.pid for other in running])
                yield report.write(one.result())
            time.sleep(0.1)
    finally:
        for one in running:  # it was interrupted: what was found until then is written
            one.stop()
            report.write(one.result())
        end_children()


class _Running:
    """A stage that runs, for so many seconds at most."""

    def __init__(self, stage: Stage, report: Report, seconds: float) -> None:
        self._stage, self._report, self._seconds = stage, report, seconds
        self._begin, self._late = time.monotonic(), False
        self._work = report.folder / "work" / stage.name
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        with (self._work / "log").open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", __name__, stage.function, report.device, str(self._work)],
                cwd=ROOT,
                env={**os.environ, **OFFLINE, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def is_over(self) -> bool:
        """Whether it has ended. It is stopped when its time is over."""
        if self.process.poll() is None and time.monotonic() > self._begin + self._seconds:
            self._late = True
            self.stop()
        return self.process.poll() is not None

    def stop(self) -> None:
        """Interrupt it, and kill it if that is not enough."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def result(self) -> Result:
        """How it ended; its folder goes."""
        lines, file = self._report.log(self._stage.name, self._work / "log"), self._work / NOTED
        noted = json.loads(file.read_bytes()) if file.is_file() else {"checks": [], "figures": {}}
        shutil.rmtree(self._work, ignore_errors=True)
        code, checks = self.process.returncode, noted["checks"]
        status = STATUS.get(code, FAILED)
        if self._late and code != 0:
            status = FAILED if any(check["status"] == FAILED for check in checks) else ENDED
        said = {check["status"]: f"{check['name']}: {check['detail']}".strip(": ") for check in reversed(checks)}
        passed = f"{sum(check['status'] == PASSED for check in checks)} checks passed"
        line = {
            PASSED: passed,
            SKIPPED: said.get(SKIPPED, ""),
            ENDED: f"{passed}, then {f'its {self._seconds:.0f} s were over' if self._late else 'interrupted'}",
            FAILED: said.get(FAILED) or next(iter(lines[::-1]), "it printed nothing"),
        }[status]
        took, tail = round(time.monotonic() - self._begin, 1), lines[-40:] if status in (FAILED, ENDED) else []
        return Result(self._stage.name, self._report.device, status, line, code, took, checks, noted["figures"], tail)


def adopt_orphans() -> None:
    """From now on, what a process below this one leaves becomes a child of this one (Linux's prctl)."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_children(but: Collection[int] = ()) -> None:
    """Kill what runs below this process, but for these children and what is below them."""
    while children := [child for child in psutil.Process().children() if child.pid not in but and _is_alive(child)]:
        for child in children:
            with suppress(psutil.Error):
                child.kill()
                child.wait(5)


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.status() != psutil.STATUS_ZOMBIE
    return False


def main(stage: str, device: str, work: str) -> int:
    """A stage's own process; what it started has ended when it ends. The exit status is one of ``STATUS``."""
    probe = Probe(device, Path(work))
    module, function = stage.split(":")
    adopt_orphans()
    try:
        # of each stage, as one that is kept may be of an earlier commit
        now, commit = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), ""
        with suppress(OSError):
            command = ["git", "rev-parse", "--short=12", "HEAD"]
            commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
        probe.figure("project", f"{__version__}, commit {commit or 'unknown'}, {now}")
        getattr(importlib.import_module(module), function)(probe)
    except SkipStage as reason:
        probe.skip("the stage", str(reason))
        return 3
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return 130
    except Exception as error:
        if not isinstance(error, StageFailed):
            traceback.print_exc()
        print(f"{type(error).__name__}: {' '.join(str(error).split())}", flush=True)
        return 1
    finally:
        end_children()
    ends = {check["status"] for check in probe.checks}
    return 4 if FAILED in ends else 3 if ends == {SKIPPED} else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
