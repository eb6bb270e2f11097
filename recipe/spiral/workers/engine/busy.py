"""How long a server has had requests to answer: where games are played while others are trained, no timer of the
trainer's says it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Busy:
    """Counts the requests that are under way, and the seconds in which there are some."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.under_way = 0
        self._seconds = self._since = 0.0

    @contextmanager
    def answering(self) -> Iterator[None]:
        """A request is under way within this context."""
        if self.under_way == 0:
            self._since = self._clock()
        self.under_way += 1
        try:
            yield
        finally:
            self.under_way -= 1
            if self.under_way == 0:
                self._seconds += self._clock() - self._since

    @property
    def seconds(self) -> float:
        """All of them so far."""
        return self._seconds + (self._clock() - self._since if self.under_way else 0.0)
