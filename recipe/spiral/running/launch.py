"""Starts a run's processes and leaves none behind.

The driver becomes the parent of every orphan among its descendants, so that all processes of a run are below it.
However the run ends (done, failed, Ctrl-C, a dead worker), the driver ends those processes and removes their shared
memory. It also keeps their numbers in a file: after a driver was killed, the next start ends what it left.

Several runs may use a machine at the same time, each in its own folder. A run ends and removes only what is its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ..storage.disk import InUse, write_whole

PROCESSES = "processes.json"
LOCK = "in_use.lock"
#: Names of shared-memory segments that Python, torch, verl and vLLM make.
_SEGMENTS = ("psm_", "torch_", "verl_", "sem.", "nccl-")
_SHM = Path("/dev/shm")
_PR_SET_PDEATHSIG = 1
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
    """End every process that the block started when the block ends; SIGTERM ends the block like Ctrl-C.

    Raises:
        InUse: another run has the folder.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    notes = run_dir / PROCESSES
    with _only_one(run_dir):
        end_leftovers(notes)
        _adopt_orphans()
        previous = signal.getsignal(signal.SIGTERM)
        interrupt_on_sigterm()
        stop_noting = _start_noting(notes)
        try:
            yield
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C must not cut the cleaning short
            segments = stop_noting()
            _shut_ray_down()
            end_processes(psutil.Process().children(recursive=True))
            remove_segments(segments)
            notes.unlink(missing_ok=True)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, previous)


@contextmanager
def _only_one(run_dir: Path) -> Iterator[None]:
    """Keep a second run out of the folder. The system frees the lock however this process ends.

    Not ``filelock``: forked processes inherit its locks and may outlive a killed run, and it cannot look at a lock in a
    folder that is not writable.

    Raises:
        InUse: another process holds it.
    """
    with (run_dir / LOCK).open("a+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            raise InUse(
                f"run_dir={run_dir}: process {lock.read().strip()} is at work there; wait for it, end it, or give "
                "another run_dir"
            ) from None
        except OSError:  # a file system without locks
            pass
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_in_use(run_dir: Path) -> bool:
    """Whether a process is at work in the folder, which need not be writable. False where that cannot be known: without
    a lock file that can be read, or on a file system without locks."""
    try:
        lock = (run_dir / LOCK).open("rb")
    except OSError:
        return False
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:
            return False
    return False


def interrupt_on_sigterm() -> None:
    """Let SIGTERM end this process like Ctrl-C: with everything cleaned up."""
    signal.signal(signal.SIGTERM, _interrupt)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


def _adopt_orphans() -> None:
    """Make this process the parent of its descendants' orphans (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_with_parent() -> None:
    """Send this process SIGTERM when the thread that started it is gone (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


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


def _start_noting(notes: Path, interval: float = 2.0) -> Callable[[], set[str]]:
    """Keep a list of this process's descendants and of their shared-memory segments in a file.

    Returns:
        What stops it, and gives the names of all segments that were seen.
    """
    done = threading.Event()
    segments: set[str] = set()

    def note() -> None:
        noted = ""
        while not done.wait(interval):
            with suppress(psutil.Error, OSError):
                children = psutil.Process().children(recursive=True)
                segments.update(_segments_of(children))
                processes = [[child.pid, child.create_time()] for child in children]
                now = json.dumps({"processes": processes, "segments": sorted(segments)})
                if now != noted:
                    write_whole(notes, now)
                    noted = now

    thread = threading.Thread(target=note, daemon=True)
    thread.start()

    def stop() -> set[str]:
        done.set()
        thread.join()
        this = psutil.Process()
        return segments | _segments_of([this, *this.children(recursive=True)])

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
    segments = {*noted.get("segments", ()), *_segments_of(leftovers)}
    notes.unlink(missing_ok=True)
    count = end_processes(leftovers)
    remove_segments(segments)
    return count


def remove_segments(names: Iterable[str]) -> int:
    """Remove those of the named shared-memory segments that are this user's and that no process has mapped any more.

    Returns:
        How many there were.
    """
    ours = [_SHM / name for name in names if _is_ours(_SHM / name)]
    mapped = _segments_of(psutil.process_iter()) if ours else set()
    unused = [path for path in ours if path.name not in mapped]
    for path in unused:
        with suppress(OSError):
            path.unlink()
    return len(unused)


def _is_ours(path: Path) -> bool:
    with suppress(OSError):
        return path.stat().st_uid == os.getuid()
    return False


def _segments_of(processes: Iterable[psutil.Process]) -> set[str]:
    """The segments of the known kinds that any of the processes has mapped."""
    names: set[str] = set()
    for process in processes:
        # psutil's memory_maps has the kernel count every page
        with suppress(OSError), open(f"/proc/{process.pid}/maps", encoding="utf-8", errors="replace") as maps:
            names |= {Path(line.rstrip("\n").split(None, 5)[5]).name for line in maps if f" {_SHM}/" in line}
    return {name for name in names if name.startswith(_SEGMENTS) and not name.endswith(" (deleted)")}
