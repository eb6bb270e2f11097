"""A run's lines for people, and the one that says what goes on now: files of the run's folder, which all processes of
the run write, and the one that started it shows."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

#: The lines; the trainer writes them.
LOG = "train.log"
#: What goes on now, and how far it is, in two lines.
NOW = "now.txt"
#: The environment variable that tells a run's processes its folder.
RUN_DIR = "SPIRAL_RUN_DIR"
#: Seconds between two numbers of one thing.
_PAUSE = 0.3

_said, _when = "", 0.0


def say_now(what: str, number: str = "") -> None:
    """Say what this run does now, such as ``play``, ``87 of 128 games``. Outside of a run nothing happens."""
    global _said, _when
    folder, now = os.environ.get(RUN_DIR), time.monotonic()
    if folder is None or (what == _said and now - _when < _PAUSE):
        return
    _said, _when = what, now
    with suppress(OSError):  # a full disk, or another machine
        Path(folder, NOW).write_text(f"{what}\n{number}", encoding="utf-8")


def duration(seconds: float) -> str:
    """Seconds for people: 45s, 3m20s, 2h05m."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
