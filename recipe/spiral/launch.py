"""Starts a run's processes and leaves none behind.

The driver adopts whatever its descendants leave orphaned, so everything that a run started can be found below it:
however the run ends (done, failed, Ctrl-C, a dead worker), the driver ends those processes and removes their shared
memory. Their names are also kept in a file, by which the next start ends what a killed driver could not.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

PROCESSES = "processes.json"
#: Names of shared-memory segments that Python, torch, verl and vLLM make.
_SEGMENTS = ("psm_", "torch_", "verl_", "sem.", "nccl-")
_SHM = Path("/dev/shm")
_PR_SET_CHILD_SUBREAPER = 36


def set_environment(variables: Mapping[str, Any]) -> None:
    """Set what is not set already: the user's own environment comes first."""
    for name, value in variables.items():
        os.environ.setdefault(name, str(value))


def put_on_path(folder: Path) -> None:
    """Let every process of the run import from ``folder``: in a fork of verl nothing of ours is installed."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), *paths]))


@contextmanager
def clean_run(run_dir: Path) -> Iterator[None]:
    """Whatever the block starts is gone when it ends; SIGTERM ends it like Ctrl-C."""
    run_dir.mkdir(parents=True, exist_ok=True)
    notes = run_dir / PROCESSES
    end_leftovers(notes)
    _adopt_orphans()
    started = time.time()
    previous = signal.getsignal(signal.SIGTERM)
    interrupt_on_sigterm()
    stop_noting = _start_noting(notes, started)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not cut the cleaning short
        stop_noting()
        _shut_ray_down()
        end_processes(psutil.Process().children(recursive=True))
        notes.unlink(missing_ok=True)
        remove_segments(since=started)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, previous)


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end this process like Ctrl-C: with everything cleaned up."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _shut_ray_down() -> None:
    ray = sys.modules.get("ray")
    if ray is not None:
        with suppress(Exception):
            ray.shutdown()


def end_processes(processes: list[psutil.Process], patience: float = 3.0) -> int:
    """End processes, first politely; returns how many there were."""
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=patience)
    return len(processes)


def _start_noting(notes: Path, started: float, interval: float = 2.0) -> Callable[[], None]:
    """Keep a list of this process's descendants in a file, with the run's start; returns what stops it."""
    done = threading.Event()

    def note() -> None:
        while not done.wait(interval):
            with suppress(psutil.Error, OSError):
                children = psutil.Process().children(recursive=True)
                unfinished = notes.with_suffix(".tmp")
                processes = [[child.pid, child.create_time()] for child in children]
                unfinished.write_text(json.dumps({"started": started, "processes": processes}))
                unfinished.replace(notes)

    thread = threading.Thread(target=note, daemon=True)
    thread.start()

    def stop() -> None:
        done.set()
        thread.join()

    return stop


def end_leftovers(notes: Path) -> int:
    """End what a killed driver left, by the list that it kept; returns how many processes there were."""
    try:
        noted = json.loads(notes.read_text())
    except (OSError, ValueError):
        return 0
    leftovers = []
    for pid, created in noted["processes"]:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            if abs(process.create_time() - created) < 0.01:  # process numbers are used again
                leftovers.append(process)
    notes.unlink(missing_ok=True)
    count = end_processes(leftovers)
    remove_segments(since=noted["started"])
    return count


def remove_segments(since: float) -> int:
    """Remove this user's shared-memory segments made after ``since`` (epoch seconds) that no process has mapped.

    Returns:
        How many there were.
    """
    if not _SHM.is_dir():
        return 0
    ours = [path for path in _SHM.iterdir() if path.name.startswith(_SEGMENTS) and _made_since(path, since)]
    mapped = _mapped_segments() if ours else set()
    unused = [path for path in ours if path.name not in mapped]
    for path in unused:
        with suppress(OSError):
            path.unlink()
    return len(unused)


def _made_since(path: Path, since: float) -> bool:
    with suppress(OSError):
        status = path.stat()
        return status.st_uid == os.getuid() and status.st_ctime >= since
    return False


def _mapped_segments() -> set[str]:
    names: set[str] = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            names |= {Path(m.path).name for m in process.memory_maps(grouped=True) if m.path.startswith(str(_SHM))}
    return names
