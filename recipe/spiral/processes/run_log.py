"""A run's lines for people, and the one that says what goes on now: files of the run's folder, which all processes of
the run write, and the one that started it shows: on a terminal what goes on is one line that is written anew, and in a
file a line a minute."""

from __future__ import annotations

import os
import re
import shutil
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from .terminal import visible

#: The lines; the trainer writes them.
LOG = "train.log"
#: What goes on now, and how far it is, in two lines.
NOW = "now.txt"
#: The environment variable that tells a run's processes its folder.
RUN_DIR = "SPIRAL_RUN_DIR"
#: Seconds between two numbers of one thing, and after which a file without a line gets one.
_PAUSE, QUIET = 0.3, 60.0
#: What begins the terminal's line anew, and clears the rest of it.
_BEGIN, _CLEAR = "\r", "\x1b[K"
#: The lines that say how far a run is.
_STEP = re.compile(r"(?:step +(\d+)/(\d+)  ([\d.]+) s|going on after step (\d+) of (\d+)|training for (\d+) steps)")

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


class Follow:
    """Prints where this process prints now, while the block runs. A line may hold a stranger's words, such as an
    endpoint's error, so it is made harmless.

    Attributes:
        trains: whether steps have begun.
        step_seconds: how long the last step took; None: there is none.
    """

    def __init__(self, run_dir: Path, interval: float = 0.3) -> None:
        self._path, self._now, self._interval = run_dir / LOG, run_dir / NOW, interval
        self._out, self._terminal = sys.stdout, sys.stdout.isatty()
        self._position = self._path.stat().st_size if self._path.exists() else 0
        self.trains, self._step = False, ""
        self.step_seconds: float | None = None
        #: What goes on, and since when; and when a line was printed last.
        self._what, self._since, self._printed = "", time.monotonic(), time.monotonic()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Follow:
        self._now.unlink(missing_ok=True)
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join()
        self._print_new()
        self._now.unlink(missing_ok=True)
        print(end=f"{_BEGIN}{_CLEAR}" if self._terminal else "", file=self._out, flush=True)

    def say(self, line: str) -> None:
        """Print a line above the one that says what goes on."""
        print(f"{f'{_BEGIN}{_CLEAR}' if self._terminal else ''}{line}", file=self._out, flush=True)
        self._printed = time.monotonic()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._print_new()
            with suppress(OSError):
                self._print_now(self._now.read_text(encoding="utf-8"))

    def _print_now(self, text: str) -> None:
        what, _, number = text.partition("\n")
        if not what:  # it is just written
            return
        now = time.monotonic()
        if what != self._what:
            self._what, self._since = what, now
        line = visible(f"{self._step}{f'{what} {number}'.strip()}, {duration(now - self._since)}", most_lines=1)
        if self._terminal:
            columns = shutil.get_terminal_size().columns
            print(f"{_BEGIN}{line[: columns - 1]}{_CLEAR}", end="", file=self._out, flush=True)
        elif now - self._printed >= QUIET:
            self.say(line)

    def _print_new(self) -> None:
        """Print the whole lines that are new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            if match := _STEP.match(line):
                done, total = int(match[1] or match[4] or 0), int(match[2] or match[5] or match[6])
                self.trains, self._step = True, f"step {min(done + 1, total)}/{total}: "
                self.step_seconds = float(match[3]) if match[3] else self.step_seconds
            self.say(visible(line))
