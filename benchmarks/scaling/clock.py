"""The time of a simulation. Processes are generators, which go on in the order of their times.

A process yields the time at which it goes on, or a ``Signal`` that it waits for. A library (simpy) has the same, with
resources for what queues up; but the engine, whose speed changes with what runs on it, is none of these.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

Process = Generator["float | Signal", Any, Any]


class Stuck(RuntimeError):
    """Somebody waits, and nothing is left that could happen."""


class Signal:
    """Something that happens once; whoever waits for it is given its value."""

    def __init__(self) -> None:
        self.happened = False
        self.value: Any = None
        self.waiting: list[Process] = []


class Clock:
    """Runs processes. What happens at one time happens in the order in which it was planned, so that a simulation is
    the same each time.

    Attributes:
        now: seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def at(self, time: float, happens: Callable[[], None]) -> None:
        if time < self.now:
            raise ValueError(f"{time}: is before now, {self.now}")
        heapq.heappush(self._events, (time, next(self._numbers), happens))

    def start(self, process: Process) -> Signal:
        """Begin a process now. The signal happens when it ends, with what it returned."""
        ended = Signal()

        def whole() -> Process:
            self.fire(ended, (yield from process))

        self._go_on(whole(), None)
        return ended

    def fire(self, signal: Signal, value: Any = None) -> None:
        """Let a signal happen; those who wait go on after whoever called."""
        signal.happened, signal.value = True, value
        for process in signal.waiting:
            self.at(self.now, lambda process=process: self._go_on(process, value))  # type: ignore[misc]

    def run(self, until: Signal) -> None:
        """Let time pass until a signal has happened.

        Raises:
            Stuck: it never will.
        """
        while not until.happened:
            if not self._events:
                raise Stuck(f"at {self.now:g} s nothing is left to happen, and the run is not over")
            self.now, _, happens = heapq.heappop(self._events)
            happens()

    def _go_on(self, process: Process, value: Any) -> None:
        try:
            wait = process.send(value)
        except StopIteration:
            return
        if not isinstance(wait, Signal):
            self.at(wait, lambda: self._go_on(process, None))
        elif wait.happened:
            self.at(self.now, lambda: self._go_on(process, wait.value))
        else:
            wait.waiting.append(process)


class Servers:
    """Processes that serve one after the other, in the order of arrival: workers, TransferQueue, the driver.

    Attributes:
        number: how many there are.
        busy: seconds that all of them have worked.
    """

    def __init__(self, clock: Clock, number: int) -> None:
        self._clock, self.number, self.busy = clock, number, 0.0
        self._free = [0.0] * number

    def serve(self, seconds: float) -> float:
        """When the first that is free will have done this."""
        end = max(self._clock.now, heapq.heappop(self._free)) + seconds
        heapq.heappush(self._free, end)
        self.busy += seconds
        return end
