"""A process of ours and its children: their environment, one command at a time in a folder, and nothing left."""

from __future__ import annotations

import ctypes
import fcntl
import netrc
import os
import pwd
import signal
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from ..storage.disk import InUse, check_locks
from .interrupts import interrupt_on_signals

LOCK = "in_use.lock"
#: By which name trackers know the run, in its folder.
TRACKERS = "tracked_as"
#: The variables that tell them, and where to write.
TRACKER_VARIABLES = (
    *("TENSORBOARD_DIR", "VERL_FILE_LOGGER_PATH", "WANDB_DIR", "WANDB_MODE", "WANDB_RUN_ID", "WANDB_RESUME"),
)
_PR_SET_PDEATHSIG = 1


def set_environment(variables: Mapping[str, Any]) -> None:
    """Set what is not set already: the user's own environment comes first."""
    for name, value in variables.items():
        os.environ.setdefault(name, str(value))


def name_user() -> None:
    """Name a user whose number the system does not know, as in a container: torch and others ask for the name."""
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        set_environment({"USER": os.getuid(), "HOME": tempfile.gettempdir()})


def tracker_environment(run_dir: Path) -> dict[str, str]:
    """The variables by which trackers write into the run's folder, and nowhere else unless a key for it is there. W&B
    takes all starts in the folder for one run."""
    name = run_dir / TRACKERS
    if not name.is_file():
        name.write_text(uuid.uuid4().hex, encoding="utf-8")
    variables = {
        "TENSORBOARD_DIR": str(run_dir / "tensorboard"),
        "WANDB_DIR": str(run_dir),
        "WANDB_RUN_ID": name.read_text(encoding="utf-8"),
        "WANDB_RESUME": "allow",
        "VERL_FILE_LOGGER_PATH": str(run_dir / f"metrics-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"),
    }
    if not os.environ.get("WANDB_API_KEY") and not _has_login(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")):
        variables["WANDB_MODE"] = "offline"
    return variables


def _has_login(address: str) -> bool:
    """Whether ``.netrc``, where W&B keeps its key, has one for this host."""
    try:
        return netrc.netrc().authenticators(str(urlsplit(address).hostname)) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def put_on_path(folder: Path) -> None:
    """Let every process of the run import from ``folder``: in a fork of verl nothing of ours is installed."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), *paths]))


@contextmanager
def clean_run(run_dir: Path, setting: str = "run_dir") -> Iterator[None]:
    """End every child process when the block ends; signals end the block like Ctrl-C.

    Makes the folder, which ``setting`` names in messages. Raises InUse where another process has it.
    """
    run_dir.mkdir(parents=True, exist_ok=True)
    with only_one(run_dir, setting):
        interrupt_on_signals()
        try:
            yield
        finally:
            end_processes(psutil.Process().children(recursive=True))


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


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Send this process a signal when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


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
