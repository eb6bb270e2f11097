"""How long a server has had requests to answer: where games are played while others are trained, no timer of the
trainer's says it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Busy:
    """Counts the seconds in which at least one request is under way.

    Args:
        clock: in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._under_way = 0
        self._seconds = self._since = 0.0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A request is under way within it."""
        if self._under_way == 0:
            self._since = self._clock()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._seconds += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """All of them so far."""
        return self._seconds + (self._clock() - self._since if self._under_way else 0.0)
