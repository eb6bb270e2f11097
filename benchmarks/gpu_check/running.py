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
from contextlib import suppress
from pathlib import Path

import psutil

from recipe.spiral.processes.interrupts import END_SIGNALS, INTERRUPTED, held_back
from recipe.spiral.processes.launch import GUARD, end_processes, end_with_parent

from .inside import TO_ITS_END
from .probe import ENDED, FAILED, PASSED, SKIPPED, read
from .results import Log, Result, Results
from .stages import Stage

#: Exit statuses of a stage's process, and those of one that somebody else has ended.
STATUS = {0: PASSED, 1: FAILED, 3: SKIPPED, TO_ITS_END: FAILED}
FROM_OUTSIDE = {INTERRUPTED, *(-number for number in END_SIGNALS)}
#: Seconds in which a stage cleans up after itself when its time is over; and in which what it leaves is ended.
PATIENCE, AFTER = 10.0, 4.0
#: Stages that run side by side, and the cores that each should have. A fourth adds a minute to each start.
LANES, CORES = 3, 4
#: What every stage is run with: nothing is asked for over the network.
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "PYTHONUNBUFFERED": "1",
}
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
ROOT = Path(__file__).resolve().parents[2]


def lanes() -> int:
    """How many stages this machine can run side by side."""
    return max(2, min(LANES, len(os.sched_getaffinity(0)) // CORES))


def left(end: float | None) -> float:
    """The seconds that stages have which must be over at ``end``."""
    return float("inf") if end is None else end - PATIENCE - AFTER - time.monotonic()


def run(
    stages: Sequence[Stage], results: Results, limit: float | None = None, end: float | None = None, most: int = 1
) -> Generator[Result, None, None]:
    """Run stages; their results come as they end, masked and written. What has less left than its least is not begun,
    which is its result. A signal that ends all of it waits until what was found until then is written.

    Args:
        stages: which, in their order.
        results: where they and their logs go.
        limit: seconds for each; None: the stage's own.
        end: when all of them must be over, by ``time.monotonic``; None: never.
        most: how many run side by side.

    Raises:
        OSError: the folder cannot be written to.
    """
    waiting, running = list(stages), list[Running]()
    try:
        while waiting or running:
            while waiting and len(running) < most:
                stage = waiting.pop(0)
                there_is, least = left(end), stage.least[results.device]
                if there_is < least:
                    why = f"not begun: {max(there_is, 0):.0f} s left, it needs {least:.0f}"
                    yield results.write(Result(stage.name, results.device, ENDED, why, 0, 0, 0))
                elif (there := shutil.disk_usage(results.folder).free / 1e9) < (needed := stage.disk[results.device]):
                    why = (
                        f"the disk has {there:.2g} GB free, and this stage needs {needed:g}: free some and start again"
                    )
                    yield results.write(Result(stage.name, results.device, FAILED, why, 1, 0, 0))
                else:
                    with held_back():
                        running.append(Running(stage, results, limit or stage.limits[results.device], there_is))
            for one in [one for one in running if one.over()]:
                with held_back():
                    running.remove(one)
                    result = results.write(one.result([other.process for other in running]))
                yield result
            time.sleep(0.1)
    finally:
        with held_back():
            for one in running:
                one.interrupt("interrupted")
            while not all([one.over() for one in running]):
                time.sleep(0.1)
            for one in running:
                results.write(one.result([]))


class Running:
    """A stage that runs.

    Args:
        stage: which.
        results: where its log goes.
        limit: the seconds that it may take.
        left: the seconds that are left for it.
    """

    def __init__(self, stage: Stage, results: Results, limit: float, left: float) -> None:
        self._stage, self._results = stage, results
        self._limit = min(limit, left)
        self._late = "out of time" if self._limit < limit else f"its limit of {limit:g} s was over"
        self._work = results.work(stage.name)
        shutil.rmtree(self._work, ignore_errors=True)
        self._work.mkdir(parents=True)
        self._log, self._begin = results.log(stage.name), time.monotonic()
        self._interrupted, self._why = float("inf"), ""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.gpu_check.inside", stage.function, results.device, str(self._work)],
            cwd=ROOT,
            env={**os.environ, **OFFLINE, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=end_with_parent,
        )
        self._reader = threading.Thread(target=_read, args=(self.process, self._log), daemon=True)
        self._reader.start()

    def interrupt(self, why: str) -> None:
        """End it as Ctrl-C does."""
        if not self._why:
            self._interrupted, self._why = time.monotonic(), why
            with suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGINT)

    def over(self) -> bool:
        """Whether it has ended. When its time is over it is interrupted, and if that is not enough, killed with all
        that it started."""
        if self.process.poll() is not None:
            return True
        now = time.monotonic()
        if now - self._begin > self._limit:
            self.interrupt(self._late)
        if now - self._interrupted > PATIENCE:
            # it adopts its descendants' orphans (``clean_run``), so that all are below it
            with suppress(psutil.Error):
                end_processes(psutil.Process(self.process.pid).children(recursive=True), AFTER / 4)
            self.process.kill()
        return False

    def result(self, others: Sequence[subprocess.Popen[bytes]]) -> Result:
        """Its result, when it is over. ``others`` are the processes of the stages that still run."""
        _end_orphans({process.pid for process in others})
        self._reader.join(10.0)
        self._log.close()
        noted = read(self._work / "noted.json")
        shutil.rmtree(self._work, ignore_errors=True)
        checks, code = noted["checks"], self.process.returncode
        status, why = STATUS.get(code, FAILED), self._why or ("interrupted" if code in FROM_OUTSIDE else "")
        if why and code != 0:
            status = FAILED if any(check["status"] == FAILED for check in checks) else ENDED
        return Result(
            self._stage.name,
            self._results.device,
            status,
            _line(status, checks, self._log, code, self._stage.checks, why),
            code,
            round(time.monotonic() - self._begin, 1),
            round(self._limit, 1),
            checks,
            noted["figures"],
            list(self._log.tail) if status in (FAILED, ENDED) else [],
        )


def _end_orphans(running: set[int]) -> None:
    """End what a stage left: a stage that runs adopts its orphans, so that all other children are of one that ended,
    but for this process' own guard (``clean_run``)."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if child.pid not in running and GUARD not in child.cmdline():
                end_processes([*child.children(recursive=True), child], AFTER / 4)


def _read(process: subprocess.Popen[bytes], log: Log) -> None:
    assert process.stdout is not None
    with suppress(ValueError):  # closed meanwhile
        for line in process.stdout:
            text = line.decode("utf-8", errors="replace").rstrip("\r\n").rsplit("\r", 1)[-1]
            log.take(_COLOURS.sub("", text))


def _line(status: str, checks: list[dict[str, str]], log: Log, code: int, all_checks: int, why: str) -> str:
    """A result in one line.

    Args:
        all_checks: how many the stage makes; 0: unknown.
        why: it was ended before its end; "": it was not.
    """
    counts = {kind: sum(check["status"] == kind for check in checks) for kind in (PASSED, FAILED, SKIPPED)}
    last = next((line for line in reversed(log.tail) if line.strip()), "it printed nothing")
    bad = next((check for check in checks if check["status"] == FAILED), None)
    if bad is not None:
        return ": ".join(filter(None, (bad["name"], bad["detail"])))
    if status == ENDED or code < 0:
        why = why or f"ended by signal {signal.Signals(-code).name}"
        return f"{counts[PASSED]}{f' of {all_checks}' if all_checks else ''} passed, then {why}"
    if status == FAILED:
        return last
    if status == SKIPPED:
        return next((check["detail"] for check in checks if check["status"] == SKIPPED), last)
    skipped = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
    return f"{counts[PASSED]} checks passed{skipped}"
