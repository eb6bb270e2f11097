"""Runs one stage in a process of its own: its output into its log, its end when its time is over, and nothing left."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import psutil

from recipe.spiral.processes.launch import end_processes, end_with_parent
from recipe.spiral.storage.disk import free, is_full

from .probe import FAILED, PASSED, SKIPPED, read
from .results import Log, Result, Results
from .stages import Stage

#: Exit statuses of a stage's process.
STATUS = {0: PASSED, 1: FAILED, 3: SKIPPED}
#: Seconds in which a stage cleans up after itself when its time is over.
PATIENCE = 30.0
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


def run(stage: Stage, results: Results, limit: float | None = None) -> Result:
    """Run a stage; its result is not written yet.

    Args:
        stage: which.
        results: where its log goes.
        limit: seconds; None: the stage's own.

    Raises:
        OSError: the folder cannot be written to.
    """
    limit = stage.limits[results.device] if limit is None else limit
    work = results.work(stage.name)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    if (there := free(work) / 1e9) < (needed := stage.disk[results.device]):
        line = f"the disk has {there:.2g} GB free, and this stage needs {needed:g}: free some space and start again"
        return Result(stage.name, results.device, FAILED, line, 1, 0.0, limit)
    log, begin = results.log(stage.name), time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.gpu_check.inside", stage.function, results.device, str(work)],
        cwd=ROOT,
        env={**os.environ, **OFFLINE, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=end_with_parent,
    )
    reader = threading.Thread(target=_read, args=(process, log), daemon=True)
    reader.start()
    in_time = True
    try:
        while process.poll() is None:
            if time.monotonic() - begin > limit:
                in_time = False
                _end(process)
                break
            with suppress(subprocess.TimeoutExpired):
                process.wait(1.0)
    except BaseException:
        _end(process)
        raise
    finally:
        # All orphans below this process are its children, and what they share is removed at the end: ``clean_run``.
        end_processes(psutil.Process().children(recursive=True))
        reader.join(10.0)
        log.close()
        noted = read(work / "noted.json")
        shutil.rmtree(work, ignore_errors=True)
    status = STATUS.get(process.returncode, FAILED) if in_time else FAILED
    line = _line(status, noted["checks"], log, process.returncode, None if in_time else limit)
    seconds = round(time.monotonic() - begin, 1)
    tail = list(log.tail) if status == FAILED else []
    return Result(
        stage.name,
        results.device,
        status,
        line,
        process.returncode,
        seconds,
        limit,
        noted["checks"],
        noted["figures"],
        tail,
    )


def _read(process: subprocess.Popen[bytes], log: Log) -> None:
    assert process.stdout is not None
    with suppress(ValueError):  # closed meanwhile
        for line in process.stdout:
            text = line.decode("utf-8", errors="replace").rstrip("\r\n").rsplit("\r", 1)[-1]
            log.take(_COLOURS.sub("", text))


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a stage: as Ctrl-C does, and if that is not enough, at once."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _line(status: str, checks: list[dict[str, str]], log: Log, code: int, limit: float | None) -> str:
    """A result in one line."""
    counts = {kind: sum(check["status"] == kind for check in checks) for kind in (PASSED, FAILED, SKIPPED)}
    last = next((line for line in reversed(log.tail) if line.strip()), "it printed nothing")
    if log.error is not None and is_full(log.error):
        return "the disk is full: free some space and start again"
    if limit is not None:
        done = f"after {checks[-1]['name']!r}" if checks else "before its first check"
        return f"not done within its limit of {limit:g} s: it was ended {done}"
    if status == FAILED:
        bad = next((check for check in checks if check["status"] == FAILED), None)
        if bad is not None:
            return ": ".join(filter(None, (bad["name"], bad["detail"])))
        return f"ended by signal {signal.Signals(-code).name}" if code < 0 else last
    if status == SKIPPED:
        return next((check["detail"] for check in checks if check["status"] == SKIPPED), last)
    skipped = f", {counts[SKIPPED]} skipped" if counts[SKIPPED] else ""
    return f"{counts[PASSED]} checks passed{skipped}"
