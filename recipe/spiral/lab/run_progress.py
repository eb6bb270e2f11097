"""How far a run came, by its lines for people."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ..processes.run_log import LOG


def progress(title: str, show: Callable[[str], None]) -> Callable[[str], None]:
    """Takes the lines of a ``train.log``; shows how far the run is: one line for each tenth of its steps."""
    tenths = 0

    def take(line: str) -> None:
        nonlocal tenths
        if match := re.match(r"step +(\d+)/(\d+)(?:.* ETA (\S+))?", line):
            step, total = int(match[1]), int(match[2])
            if 10 * step // total > tenths:
                tenths = 10 * step // total
                show(f"{title}: step {step}/{total}{f', ETA {match[3]}' if match[3] else ''}")

    return take


def steps_done(run_dir: Path) -> int:
    """The last step that a run's log has a line of; 0 where there is none."""
    return _last_step(run_dir, "(?:step|going on after step)") or 0


def resumed_after(run_dir: Path) -> int | None:
    """The step after which a run was started last, by its log: 0 if it went on from none; None without a log."""
    return _last_step(run_dir, "going on after step")


def _last_step(run_dir: Path, line: str) -> int | None:
    """The step in the last line that begins so: 0 if none does; None without a log."""
    log = run_dir / LOG
    if not log.is_file():
        return None
    with log.open("rb") as lines:
        steps = [match[1] for text in lines if (match := re.match(rf"{line} +(\d+)".encode(), text))]
    return int(steps[-1]) if steps else 0
