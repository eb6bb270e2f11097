"""Runs stages, each in a process of its own: its output into its log, its end when its time is over, nothing left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock

from .inside import INTERRUPTED, TO_ITS_END, adopt_orphans, end_children
from .probe import ENDED, FAILED, NOTED, PASSED, SKIPPED
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
ROOT = Path(__file__).resolve().parents[2]
LOCK = Lock()


def lanes() -> int:
    """How many stages this machine can run side by side."""
    return max(2, min(LANES, len(os.sched_getaffinity(0)) // CORES))


def left(end: float | None) -> float:
    """The seconds that stages have which must be over at ``end``."""
    return float("inf") if end is None else end - PATIENCE - time.monotonic()


def run(
    stages: Sequence[Stage], results: Results, limit: float | None = None, end: float | None = None, most: int = 1
) -> Iterator[Result]:
    """Run stages; their results come as they end, masked and written.

    Args:
        stages: which, in their order.
        results: where they and their logs go.
        limit: seconds for each; None: the stage's own.
        end: when all of them must be over, by ``time.monotonic``; None: never.
        most: how many run side by side.
    """
    adopt_orphans()
    running: dict[str, subprocess.Popen[bytes]] = {}
    with ThreadPoolExecutor(most) as pool:
        started = [pool.submit(_run, stage, results, limit, end, running) for stage in stages]
        try:
            for future in as_completed(started):
                with LOCK:  # a stage that starts now is not one that another one left
                    end_children(but=[process.pid for process in running.values()])
                yield results.write(future.result())
        except BaseException:  # interrupted: what was found until then is written
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)
            pool.shutdown(wait=False, cancel_futures=True)
            for process in running.values():
                process.send_signal(signal.SIGINT)
            for future in (future for future in started if not future.cancelled()):
                results.write(future.result())
            end_children()
            raise


def _run(
    stage: Stage, results: Results, limit: float | None, end: float | None, running: dict[str, subprocess.Popen[bytes]]
) -> Result:
    """Run one stage. One that has less time left than its least is not begun, which is its result."""
    begin, there = time.monotonic(), left(end)
    if there < stage.least[results.device]:
        why = f"not begun: {max(there, 0):.0f} s left, it needs {stage.least[results.device]:.0f}"
        return Result(stage.name, results.device, ENDED, why, 0, 0)
    seconds = min(limit or stage.limits[results.device], there)
    work, log = results.folder / "work" / stage.name, results.folder / "logs" / f"{stage.name}.log"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "benchmarks.gpu_check.inside", stage.function, results.device, str(work)]
    with (work / "log").open("wb") as output:
        with LOCK:
            process = running[stage.name] = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **OFFLINE, "PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        late = _wait(process, seconds)
    del running[stage.name]
    code, lines = process.returncode, results.masked_log(work / "log", log)
    noted = json.loads((work / NOTED).read_bytes()) if (work / NOTED).is_file() else {"checks": [], "figures": {}}
    shutil.rmtree(work, ignore_errors=True)
    checks = noted["checks"]
    status = STATUS.get(code, FAILED)
    if late and code != 0:
        status = FAILED if any(check["status"] == FAILED for check in checks) else ENDED
    said = {check["status"]: f"{check['name']}: {check['detail']}".strip(": ") for check in reversed(checks)}
    passed = f"{sum(check['status'] == PASSED for check in checks)} checks passed"
    line = {
        PASSED: passed,
        SKIPPED: said.get(SKIPPED, ""),
        ENDED: f"{passed}, then {f'its {seconds:.0f} s were over' if late else 'interrupted'}",
        FAILED: said.get(FAILED) or next(iter(lines[::-1]), "it printed nothing"),
    }[status]
    took, tail = round(time.monotonic() - begin, 1), lines[-40:] if status in (FAILED, ENDED) else []
    return Result(stage.name, results.device, status, line, code, took, checks, noted["figures"], tail)


def _wait(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for its end. When its time is over it is interrupted, and if that is not enough, killed: then True."""
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return True
