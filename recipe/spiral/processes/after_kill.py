"""Waits for a run's driver, and ends what it leaves if it is killed: ``python -m recipe.spiral.processes.after_kill``.

A process of its own, because SIGKILL lets the driver do nothing; Ray's agents would live on. A driver that ends by
itself ends this as well.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .launch import end_leftovers, started

#: Seconds between two looks, and seconds in which the driver's processes may end by themselves.
INTERVAL, PATIENCE = 1.0, 5.0


def main(notes: str, pid: str, since: str) -> None:
    while started(int(pid)) == since:
        time.sleep(INTERVAL)
    time.sleep(PATIENCE)
    end_leftovers(Path(notes), of=[int(pid), since])


if __name__ == "__main__":
    main(*sys.argv[1:])
