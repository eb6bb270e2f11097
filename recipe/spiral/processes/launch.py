"""A process of ours and its children: their environment, their end with it, and less looking for garbage."""

from __future__ import annotations

import ctypes
import gc
import os
import pwd
import signal
import tempfile
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: By which name trackers know the run, in its folder.
TRACKERS = "tracked_as"
#: So many new objects, in place of 700, and as many younger rounds as with Python's own thresholds.
THRESHOLDS = (20_000, 10, 10)
_PR_SET_PDEATHSIG = 1
_ends_by_itself = threading.Event()


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
    """The variables by which trackers write into the run's folder. W&B takes all starts in the folder for one run."""
    name = run_dir / TRACKERS
    if not name.is_file():
        name.write_text(uuid.uuid4().hex, encoding="utf-8")
    return {
        "TENSORBOARD_DIR": str(run_dir / "tensorboard"),
        "WANDB_DIR": str(run_dir),
        "WANDB_RUN_ID": name.read_text(encoding="utf-8"),
        "WANDB_RESUME": "allow",
        "VERL_FILE_LOGGER_PATH": str(run_dir / f"metrics-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"),
    }


def ask_wandb() -> None:
    """Without a key or a token, which W&B knows where to look for, it writes into the run's folder only. To be called
    in the process that logs, before it begins."""
    import wandb

    if "WANDB_MODE" not in os.environ and not wandb.login(prompt=False, verify=False):
        os.environ["WANDB_MODE"] = "offline"
        wandb.teardown()  # it has read its settings, and reads them again


def put_on_path(folder: Path) -> None:
    """Let every process of the run import from ``folder``: in a fork of verl nothing of ours is installed."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(folder) not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(folder), *paths]))


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Send this process a signal when the thread that started it is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def die_with_parent() -> None:
    """Kill this process when the one that started it is gone, until ``end_by_itself``: a worker of Ray's looks for its
    raylet itself, and was seen to get stuck where it ends then."""

    def hold() -> None:
        end_with_parent(signal.SIGKILL)  # which the system keeps with the thread
        _ends_by_itself.wait()

    threading.Thread(target=hold, name="dies with parent", daemon=True).start()


def end_by_itself() -> None:
    """Let Ray end this process: then it ends what this one has started."""
    _ends_by_itself.set()


def collect_less() -> None:
    """Look for garbage less often in this process, and never among what is there by now.

    Python looks at all objects again and again while their number grows. Of many games, which are all alive, that takes
    a third to two thirds of the time, and a look at all that was imported half a second.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
