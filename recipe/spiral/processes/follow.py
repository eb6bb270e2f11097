"""Shows a run: the lines of ``train.log`` as they come, and what goes on now: on a terminal in one line that is written
anew, and in a file as a line a minute."""

from __future__ import annotations

import re
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .run_log import LOG, NOW, duration
from .terminal import visible

#: Seconds without a line after which a file gets one.
QUIET = 60.0
#: The lines that say how far a run is.
_STEP = re.compile(r"(?:step +(\d+)/(\d+)  ([\d.]+) s|going on after step (\d+) of (\d+)|training for (\d+) steps)")


class Follow:
    """Prints what is appended to ``train.log``, or another file, while the block runs. A line may hold a stranger's
    words, such as an endpoint's error, so it is made harmless.

    Args:
        show: takes each line; None: prints it where this process prints now, with what goes on below it.
        interval: seconds between looks.
    """

    def __init__(
        self, run_dir: Path, show: Callable[[str], None] | None = None, interval: float = 0.3, log: str = LOG
    ) -> None:
        self._path, self._now = run_dir / log, run_dir / NOW
        self._show, self._out = show or self.say, None if show else sys.stdout
        self._interval = interval
        self._position = self._path.stat().st_size if self._path.exists() else 0
        self._lines: list[str] = []
        #: What goes on, and since when; and when something was printed last.
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
        if self._out is not None and self._out.isatty():
            print("\r\x1b[K", end="", file=self._out, flush=True)

    def say(self, line: str) -> None:
        """Print a line above the one that says what goes on."""
        clear = "\r\x1b[K" if self._out is not None and self._out.isatty() else ""
        print(f"{clear}{line}", file=self._out, flush=True)
        self._printed = time.monotonic()

    @property
    def trains(self) -> bool:
        """Whether steps have begun."""
        return any(map(_STEP.match, self._lines))

    @property
    def step_seconds(self) -> float | None:
        """How long the last step took; None: there is none."""
        found = [match for match in map(_STEP.match, self._lines) if match and match[3]]
        return float(found[-1][3]) if found else None

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._print_new()
            if self._out is not None:
                with suppress(OSError):
                    self._print_now(self._now.read_text(encoding="utf-8"))

    def _print_now(self, text: str) -> None:
        what, _, number = text.partition("\n")
        if not what or self._out is None:  # it is just written
            return
        now = time.monotonic()
        if what != self._what:
            self._what, self._since = what, now
        said = f"{self._step()}{what} {number}".strip()
        line = visible(f"{said}, {duration(now - self._since)}", most_lines=1)
        if self._out.isatty():
            columns = shutil.get_terminal_size().columns
            print(f"\r{line[: columns - 1]}\x1b[K", end="", file=self._out, flush=True)
        elif now - self._printed >= QUIET:
            self.say(line)

    def _step(self) -> str:
        """The step that is under way: the one after the last that has a line."""
        for match in filter(None, map(_STEP.match, reversed(self._lines))):
            done, total = match[1] or match[4] or "0", match[2] or match[5] or match[6]
            return f"step {min(int(done) + 1, int(total))}/{total}: "
        return ""

    def _print_new(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        lines = whole.decode("utf-8", errors="replace").splitlines()
        self._lines += lines
        for line in lines:
            self._show(visible(line))
