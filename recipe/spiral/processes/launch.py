"""Starts a run's processes and leaves none behind.

The driver becomes the parent of every orphan among its descendants, so that all processes of a run are below it.
However the run ends (done, failed, Ctrl-C, a dead worker), the driver ends those processes and removes their shared
memory. It also keeps their numbers in a file: after a driver was killed, ``after_kill`` ends what it left, by what that
driver wrote.

Several runs may use a machine at the same time, each in its own folder. A run ends and removes only what is its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from ..storage.disk import InUse, check_locks, read_json, write_whole
from .interrupts import END_SIGNALS, hold, interrupt_on_signals, release

PROCESSES = "processes.json"
LOCK = "in_use.lock"
#: The module that guards a driver.
GUARD = f"{__package__}.after_kill"
#: By which names trackers know the run, in its folder.
TRACKERS = "trackers.json"
#: The variables that tell them, and where to write.
TRACKER_VARIABLES = (
    *("TENSORBOARD_DIR", "VERL_FILE_LOGGER_PATH", "WANDB_DIR", "WANDB_MODE", "WANDB_RUN_ID", "WANDB_RESUME"),
    *("SWANLAB_RUN_ID", "SWANLAB_RESUME", "CLEARML_SET_ITERATION_OFFSET"),
)
#: Names of shared-memory segments that Python, torch, verl and vLLM make.
_SEGMENTS = ("psm_", "torch_", "verl_", "sem.", "nccl-")
_SHM = Path("/dev/shm")
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37


def set_environment(variables: Mapping[str, Any]) -> None:
    """Set what is not set already: the user's own environment comes first."""
    for name, value in variables.items():
        os.environ.setdefault(name, str(value))


def tracker_environment(run_dir: Path, file: str) -> dict[str, str]:
    """The variables by which trackers write into the run's folder, and nowhere else unless a key for it is there.

    Those that are set already are left out. ``file``: how the name of each start's own file of verl's metrics begins.
    """
    variables = {
        "TENSORBOARD_DIR": str(run_dir / "tensorboard"),
        "WANDB_DIR": str(run_dir),
        "VERL_FILE_LOGGER_PATH": str(run_dir / f"{file}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"),
    }
    if not os.environ.get("WANDB_API_KEY") and not (Path.home() / ".netrc").exists():
        variables["WANDB_MODE"] = "offline"
    return {name: value for name, value in variables.items() if name not in os.environ}


def one_run(name: str) -> dict[str, str]:
    """The variables by which trackers take all starts for one run. ClearML does so by itself, but would count a start's
    steps from the last one's on."""
    named = {f"{tracker}_RUN_ID": name for tracker in ("WANDB", "SWANLAB")}
    return named | {"WANDB_RESUME": "allow", "SWANLAB_RESUME": "allow", "CLEARML_SET_ITERATION_OFFSET": "0"}


def tracked(run_dir: Path, **more: str) -> dict[str, str]:
    """What a run's trackers call it, in all of its starts: ``run``, and ``more`` that is to be kept."""
    try:
        known = {str(tracker): str(name) for tracker, name in read_json(run_dir / TRACKERS).items()}
    except (OSError, ValueError):
        known = {}
    if more or "run" not in known:
        known = {"run": uuid.uuid4().hex[:21], **known, **more}  # SwanLab once took 21 characters, no more and no less
        write_whole(run_dir / TRACKERS, json.dumps(known))
    return known


def put_on_path(folder: Path) -> None:
    """Let every process of the run import from ``folder``: in a fork of verl nothing of ours is installed."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), *paths]))


@contextmanager
def clean_run(run_dir: Path, setting: str = "run_dir") -> Iterator[None]:
    """End every process that the block started when the block ends; SIGTERM and SIGHUP end the block like Ctrl-C.

    Makes the folder, which ``setting`` names in messages. Raises InUse where another run has it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    notes = run_dir / PROCESSES
    with only_one(run_dir, setting), _orphans_adopted():
        notes.unlink(missing_ok=True)  # a list that this start did not write ends nobody
        previous = {number: signal.getsignal(number) for number in END_SIGNALS}
        interrupt_on_signals()
        stop_noting = _start_noting(notes)
        guarding = _guard(notes)
        try:
            yield
        finally:
            hold()
            guarding.kill()
            guarding.wait()
            segments = stop_noting()
            end_processes(psutil.Process().children(recursive=True))
            remove_segments(segments)
            notes.unlink(missing_ok=True)
            release()
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def only_one(run_dir: Path, setting: str = "run_dir") -> Iterator[None]:
    """Keep a second run out of the folder. The system frees the lock however this process ends.

    Not ``filelock``: forked processes inherit its locks and may outlive a killed run, and it cannot look at a lock in a
    folder that is not writable.

    Raises:
        InUse: another process holds it, or there are no locks.
    """
    with (run_dir / LOCK).open("a+") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            raise InUse(
                f"{setting}={run_dir}: process {lock.read().strip()} is at work there; wait for it, end it, or give "
                f"another {setting}"
            ) from None
        except OSError as error:
            check_locks(f"{setting}={run_dir}", error)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_in_use(run_dir: Path) -> bool:
    """Whether a process is at work in the folder, which need not be writable. On a disk without locks: whether the last
    one's number is in use here. False where that cannot be known: without a lock file that can be read."""
    with suppress(OSError, ValueError, OverflowError), (run_dir / LOCK).open("rb") as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return True
        except OSError:
            return psutil.pid_exists(int(lock.read(20)))
    return False


@contextmanager
def _orphans_adopted() -> Iterator[None]:
    """Within it, this process becomes the parent of its descendants' orphans."""
    prctl, before = ctypes.CDLL(None).prctl, ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before, 0, 0, 0)


def end_with_parent() -> None:
    """Send this process SIGTERM when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def end_processes(processes: list[psutil.Process], patience: float = 3.0) -> None:
    """End processes, first politely."""
    for process in processes:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=patience)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=patience)


def _guard(notes: Path) -> subprocess.Popen[bytes]:
    """Start ``after_kill`` for this process, whose descendants ``notes`` names."""
    return subprocess.Popen(
        [sys.executable, "-m", GUARD, str(notes), str(os.getpid()), started(os.getpid())],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a terminal's Ctrl-C is the driver's
    )


def _start_noting(notes: Path, interval: float = 2.0) -> Callable[[], set[str]]:
    """Keep a list of this process's descendants and of their shared-memory segments in a file; returns what stops it,
    and gives the names of all segments that were seen."""
    done = threading.Event()
    segments: set[str] = set()
    driver = [os.getpid(), started(os.getpid())]

    def note() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, END_SIGNALS)  # else one may come here, and not wake the main thread
        noted = ""
        while not done.wait(interval):
            with suppress(psutil.Error, OSError):
                children = psutil.Process().children(recursive=True)
                segments.update(_segments_of(children))
                processes = [[child.pid, started(child.pid)] for child in children]
                now = json.dumps({"driver": driver, "processes": processes, "segments": sorted(segments)})
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


def started(pid: int) -> str:
    """When a process started: the machine's boot, and the clock ticks since then, which setting the clock does not
    change. Empty: there is none, or it has ended."""
    with suppress(OSError):
        state, *numbers = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return "" if state in "ZX" else f"{boot} {numbers[18]}"
    return ""


def end_leftovers(notes: Path, of: list[Any]) -> int:
    """End what a killed driver left, by the list that it kept; returns how many processes there were.

    ``of``: the driver, by number and start: another one's list, or somebody's, ends nobody.
    """
    try:
        noted = read_json(notes)
        if noted["driver"] != of:
            return 0
        leftovers = _living(noted["processes"])
        segments = {str(name) for name in noted.get("segments", ())}
    except (OSError, ValueError, TypeError, LookupError, ArithmeticError):
        return 0  # not what we write
    segments |= _segments_of(leftovers)
    end_processes(leftovers)
    remove_segments(segments)
    return len(leftovers)


def _living(noted: Iterable[Any]) -> list[psutil.Process]:
    """The processes of these numbers and starts that live; process numbers are used again."""
    living = []
    for pid, since in [(int(pid), str(since)) for pid, since in noted]:
        with suppress(psutil.Error, ValueError, OverflowError):
            if pid != os.getpid() and since and started(pid) == since:
                living.append(psutil.Process(pid))
    return living


def remove_segments(names: Iterable[str]) -> int:
    """Remove those of the named shared-memory segments that are this user's and that no process has mapped any more;
    returns how many there were. A path, or a name of no known kind, is left alone: the names may come from a file."""
    ours = [_SHM / name for name in names if _is_segment(name) and _is_ours(_SHM / name)]
    mapped = _segments_of(psutil.process_iter()) if ours else set()
    unused = [path for path in ours if path.name not in mapped]
    for path in unused:
        with suppress(OSError):
            path.unlink()
    return len(unused)


def _is_segment(name: str) -> bool:
    return name.startswith(_SEGMENTS) and "/" not in name


def _is_ours(path: Path) -> bool:
    with suppress(OSError):
        return path.lstat().st_uid == os.getuid()
    return False


def _segments_of(processes: Iterable[psutil.Process]) -> set[str]:
    """The segments of the known kinds that any of the processes has mapped.

    They are told by their inodes: a semaphore is mapped under another name than it gets.
    """
    inodes: set[int] = set()
    for process in processes:
        # psutil's memory_maps has the kernel count every page
        with suppress(OSError), open(f"/proc/{process.pid}/maps", encoding="utf-8", errors="replace") as maps:
            inodes |= {int(line.split(None, 5)[4]) for line in maps if f" {_SHM}/" in line}
    with suppress(OSError), os.scandir(_SHM) as files:
        return {file.name for file in files if file.inode() in inodes and _is_segment(file.name)}
    return set()
