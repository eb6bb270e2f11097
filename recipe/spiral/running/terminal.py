"""What a command prints: the lines of ``train.log`` as they come, durations, and one last line when it fails."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

#: A run's lines for people, in its folder; the trainer writes them.
LOG = "train.log"


class Follow:
    """The driver's side: prints what is appended to ``train.log``, or another file, while the block runs."""

    def __init__(
        self, run_dir: Path, show: Callable[[str], None] = print, interval: float = 0.3, log: str = LOG
    ) -> None:
        self._path = run_dir / log
        self._show = show
        self._interval = interval
        self._position = self._path.stat().st_size if self._path.exists() else 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Follow:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._print_new()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            self._print_new()

    def _print_new(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as log:
            log.seek(self._position)
            new = log.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.decode("utf-8", errors="replace").splitlines():
            self._show(line)


def steps_done(run_dir: Path) -> int:
    """The last step that a run's log tells of; 0 where there is none."""
    log = run_dir / LOG
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    told = [found for line in lines if (found := re.match(r"(?:step|going on after step) +(\d+)", line))]
    return int(told[-1].group(1)) if told else 0


def fail(error: object, status: int) -> int:
    """A command's last line where it fails, as one line on stderr; returns the exit status."""
    sys.stdout.flush()
    print(f"spiral: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
    return status


def duration(seconds: float) -> str:
    """Seconds for people: 45s, 3m20s, 2h05m."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
