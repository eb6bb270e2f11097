"""Records one step of a run that is under way: what each thread of each of its processes does, sampled by py-spy.

Nothing is changed in the run. The result is a trace in Chrome's format, which https://ui.perfetto.dev shows in a
browser, and a table of the CPU seconds of each process. Processes on other machines are not seen.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from ...processes.launch import LOCK, is_in_use
from ...processes.run_log import LOG
from ..run_progress import steps_done

#: Seconds between looks at the run's log.
INTERVAL = 0.05
#: Samples per second. At 100 py-spy needs a core for itself, and a step on two cores takes 2.5 times as long.
RATE = 20
#: Seconds in which py-spy writes its file.
PATIENCE = 120.0
#: The first pattern that is found in the command line counts.
NAMES = (
    (r"ray::TaskRunner|spiral::trainer", "trainer"),
    (r"ray::\w*WorkerDict", "policy worker"),
    (r"ray::(VLLMServer|FastServer|vLLMHttpServer)", "vLLM server"),
    (r"ray::(Fast)?SlotServer", "opponent's vLLM server"),
    (r"EngineCore", "vLLM's engine"),
    (r"ray::(RolloutWorker|AgentLoopWorkerTQ)", "rollout worker"),
    (r"ray::GlobalRequestLoadBalancer", "load balancer"),
    (r"ray::(SimpleStorageUnit|TransferQueueController)", "TransferQueue"),
    (r"ray::IDLE|default_worker|setup_worker", "Ray: idle worker"),
    (r"ray::", "Ray: other actors"),
    (r"/raylet ", "Ray: raylet"),
    (r"gcs_server", "Ray: GCS"),
    (r"log_monitor", "Ray: log monitor"),
    (r"runtime_env", "Ray: environments"),
    (r"dashboard", "Ray: dashboard"),
    (r"spiral::ray", "Ray's driver"),
    (r"main_spiral", "driver"),
    (r"models\.registry", "vLLM's look at the model"),
    (r"resource_tracker", "Python's resource tracker"),
)


class CannotTrace(RuntimeError):
    """The run cannot be traced; the message says why, and what to do."""


@dataclass(frozen=True)
class Traced:
    """What was recorded: how long a step took, and each process's CPU seconds, those with most first."""

    step: int
    seconds: float
    cpu: list[tuple[str, float]]


def trace_step(run_dir: Path, file: Path, step: int | None = None, rate: int = RATE) -> Traced:
    """Wait for a step of a run to begin, and record it until it ends.

    Args:
        run_dir: the run's folder.
        file: where the trace goes.
        step: which; None: the next that begins. Of one that is under way, the rest is recorded.
        rate: samples per second.

    Raises:
        CannotTrace: no run is under way there, it ended before, py-spy is missing or may not look at it.
    """
    spy = _py_spy()
    if spy is None:
        raise CannotTrace("py-spy is not installed: pip install py-spy")
    driver = driver_of(run_dir)
    done = steps_done(run_dir)
    wanted = done + 2 if step is None else step
    if wanted <= done:
        raise CannotTrace(f"step {wanted} is over: {done} are done")
    print(f"waiting for step {wanted} to begin")
    _wait(run_dir, driver, lambda: steps_done(run_dir) >= wanted - 1)
    before, began = dict(_cpu_seconds(driver)), time.monotonic()
    command = [spy, "record", "--pid", str(driver.pid), "--subprocesses", "--nonblocking", "--format", "chrometrace"]
    command += ["--rate", str(rate), "--duration", "unlimited", "--output", str(file)]
    file.unlink(missing_ok=True)  # of an earlier trace, which would be taken for this one where py-spy records nothing
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        print(f"recording step {wanted}")
        _wait(run_dir, driver, lambda: steps_done(run_dir) >= wanted or recorder.poll() is not None)
        seconds, after = time.monotonic() - began, dict(_cpu_seconds(driver))
    finally:
        with suppress(ProcessLookupError):
            recorder.send_signal(signal.SIGINT)  # it writes what it has
        try:
            _, errors = recorder.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            recorder.kill()
            _, errors = recorder.communicate()
    if not file.is_file():
        raise CannotTrace(
            f"py-spy recorded nothing; it needs the right to look into processes: {errors.strip()[-500:]}"
        )
    name_processes(file, {pid: name for pid, (name, _) in after.items()})
    spent = [(name, cpu - before.get(pid, ("", 0.0))[1]) for pid, (name, cpu) in after.items()]
    return Traced(wanted, seconds, sorted(spent, key=lambda row: -row[1]))


def driver_of(run_dir: Path) -> psutil.Process:
    """The process that started the run, by the lock that it holds. CannotTrace: there is none."""
    if not is_in_use(run_dir):
        raise CannotTrace(f"{run_dir}: no run is under way there; start one, and then this beside it")
    return psutil.Process(int((run_dir / LOCK).read_text()))


def _py_spy() -> str | None:
    """The program, also where this environment is used without being activated."""
    return shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))


def name_processes(file: Path, names: dict[int, str]) -> None:
    """Put the processes' names into a trace of py-spy's, which is a list of events."""
    events: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    seen = {event["pid"] for event in events}
    known = {"ph": "M", "name": "process_name"}
    named = [known | {"pid": pid, "args": {"name": name}} for pid, name in names.items() if pid in seen]
    file.write_text(json.dumps([*named, *events]), encoding="utf-8")


def name_of(command_line: str) -> str:
    """A process's name for people: that of its program, where it is none of a run's."""
    known = (name for pattern, name in NAMES if re.search(pattern, command_line))
    return next(known, None) or command_line.split(" ")[0].rsplit("/", 1)[-1]


def _wait(run_dir: Path, driver: psutil.Process, reached: Callable[[], bool]) -> None:
    while not reached():
        if not driver.is_running():
            raise CannotTrace(f"{run_dir}: the run ended before; the last lines of {LOG} say how")
        time.sleep(INTERVAL)


def _cpu_seconds(driver: psutil.Process) -> Iterator[tuple[int, tuple[str, float]]]:
    """Name and CPU seconds of the driver and of all that it started, by their numbers."""
    processes: Iterable[psutil.Process] = [driver, *driver.children(recursive=True)]
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            yield process.pid, (name_of(" ".join(process.cmdline())), times.user + times.system)
