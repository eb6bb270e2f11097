"""Looks at the steps of a long run in several processes, and gives what it found in the steps' order."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .games import Games
from .recompute import Settings

#: Below so many bytes of files, processes take longer to start than they save.
_SMALL = 5_000_000
#: A process is given so many steps at once, and so many times as many wait for it.
_AT_ONCE, _WAITING = 4, 3

_settings: Settings | None = None


def look_at_all(files: Sequence[Path], settings: Settings) -> Iterator[Games]:
    """Each step's games, looked at one by one. Few steps at a time are held in memory.

    Args:
        files: the steps', in their order.
        settings: the run's.
    """
    processes = len(os.sched_getaffinity(0))
    if processes == 1 or sum(file.stat().st_size for file in files) < _SMALL:
        for file in files:
            yield Games(file, settings)
        return
    portions = deque(files[place : place + _AT_ONCE] for place in range(0, len(files), _AT_ONCE))
    under_way: deque[Future[list[Games]]] = deque()
    with ProcessPoolExecutor(processes, get_context("spawn"), _start, (settings,)) as pool:
        try:
            while portions or under_way:
                while portions and len(under_way) < processes * _WAITING:
                    under_way.append(pool.submit(_look, portions.popleft()))
                yield from under_way.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


def _start(settings: Settings) -> None:
    global _settings
    _settings = settings
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's, which ends this process


def _look(files: Sequence[Path]) -> list[Games]:
    assert _settings is not None
    return [Games(file, _settings) for file in files]
