"""Runs stages, each in a process of its own: its output into its log, its end when its time is over, nothing left."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Sequence
from pathlib import Path

from .inside import INTERRUPTED, TO_ITS_END, adopt_orphans, end_children
from .probe import ENDED, FAILED, PASSED, SKIPPED, read
from .results import Result, Results
from .stages import Stage

#: Exit statuses of a stage's process.
STATUS = {0: PASSED, 1: FAILED, 3: SKIPPED, TO_ITS_END: FAILED, INTERRUPTED: ENDED}
#: Seconds in which a stage cleans up after itself when its time is over.
PATIENCE = 10.0
#: Stages that run side by side, and the cores that each should have. A fourth adds a minute to each start.
LANES, CORES = 3, 4
#: What every stage is run with: nothing is asked for over the network.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "WANDB_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "PYTHONUNBUFFERED": "1",
}
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
ROOT = Path(__file__).resolve().parents[2]


def lanes() -> int:
    """How many stages this machine can run side by side."""
    return max(2, min(LANES, len(os.sched_getaffinity(0)) // CORES))


def left(end: float | None) -> float:
    """The seconds that stages have which must be over at ``end``."""
    return float("inf") if end is None else end - PATIENCE - time.monotonic()


def run(
    stages: Sequence[Stage], results: Results, limit: float | None = None, end: float | None = None, most: int = 1
) -> Generator[Result, None, None]:
    """Run stages; their results come as they end, masked and written.

    Args:
        stages: which, in their order. What has less left than its least is not begun, which is its result.
        results: where they and their logs go.
        limit: seconds for each; None: the stage's own.
        end: when all of them must be over, by ``time.monotonic``; None: never.
        most: how many run side by side.
    """
    adopt_orphans()
    waiting, running = list(stages), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                stage = waiting.pop(0)
                if (there := left(end)) < (least := stage.least[results.device]):
                    why = f"not begun: {max(there, 0):.0f} s left, it needs {least:.0f}"
                    yield results.write(Result(stage.name, results.device, ENDED, why, 0, 0))
                else:
                    running.append(Running(stage, results, min(limit or stage.limits[results.device], there)))
            for one in [one for one in running if one.over()]:
                running.remove(one)
                end_children(but=[other.process.pid for other in running])
                yield results.write(one.result())
            time.sleep(0.1)
    finally:
        for one in running:
            one.interrupt("interrupted")
        for one in running:
            while not one.over():
                time.sleep(0.1)
            results.write(one.result())
        end_children()


class Running:
    """A stage that runs, for so many seconds at most."""

    def __init__(self, stage: Stage, results: Results, limit: float) -> None:
        self._stage, self._results, self._limit = stage, results, limit
        self._work = results.folder / "work" / stage.name
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._begin, self._interrupted, self._why = time.monotonic(), float("inf"), ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_check.inside", stage.function, results.device, str(self._work)],
            cwd=ROOT,
            env={**os.environ, **OFFLINE, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._tail: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self._results.log(self._stage.name).open("w", encoding="utf-8") as log:
            for line in self.process.stdout:
                text = _COLOURS.sub("", line.decode("utf-8", errors="replace").rstrip().rsplit("\r", 1)[-1])
                masked = self._results.masker(text)
                self._tail = [*self._tail[-39:], masked]
                log.write(f"{masked}\n")
                log.flush()

    def interrupt(self, why: str) -> None:
        """End it as Ctrl-C does."""
        if not self._why:
            self._interrupted, self._why = time.monotonic(), why
            self.process.send_signal(signal.SIGINT)

    def over(self) -> bool:
        """Whether it has ended. When its time is over it is interrupted, and if that is not enough, killed."""
        if self.process.poll() is not None:
            return True
        now = time.monotonic()
        if now - self._begin > self._limit:
            self.interrupt(f"its {self._limit:.0f} s were over")
        if now - self._interrupted > PATIENCE:
            self.process.kill()
        return False

    def result(self) -> Result:
        """Its result, when it is over."""
        self._reader.join(10.0)
        noted, code = read(self._work), self.process.returncode
        shutil.rmtree(self._work, ignore_errors=True)
        checks = noted["checks"]
        status = STATUS.get(code, FAILED)
        if self._why and code != 0:
            status = FAILED if any(check["status"] == FAILED for check in checks) else ENDED
        line, seconds = self._line(status, checks), round(time.monotonic() - self._begin, 1)
        tail = self._tail if status in (FAILED, ENDED) else []
        return Result(
            self._stage.name, self._results.device, status, line, code, seconds, checks, noted["figures"], tail
        )

    def _line(self, status: str, checks: list[dict[str, str]]) -> str:
        passed = sum(check["status"] == PASSED for check in checks)
        said = {
            check["status"]: ": ".join(filter(None, (check["name"], check["detail"]))) for check in reversed(checks)
        }
        if FAILED in said:
            return said[FAILED]
        if status == ENDED:
            return f"{passed} checks passed, then {self._why or 'interrupted'}"
        if status == SKIPPED:
            return said.get(SKIPPED, "skipped")
        return f"{passed} checks passed" if status == PASSED else next(iter(self._tail[::-1]), "it printed nothing")
