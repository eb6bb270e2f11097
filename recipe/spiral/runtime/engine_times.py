"""When vLLM's engine ended a request: its answer may then wait for the process that it goes to.

That process plays games, or looks after many requests, and what it does meanwhile is not the engine's time. vLLM says
when with each of its outputs, but keeps it only together with all of its other statistics.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class Timer:
    """Of one request, in seconds of the clock ``time.monotonic``."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self.ended: float | None = None

    def seconds(self) -> float:
        """From its beginning to the engine's end; until now, where the engine did not end it, or has another clock."""
        now = time.monotonic()
        ended = now if self.ended is None or not self._began <= self.ended <= now else self.ended
        return ended - self._began


class Ends:
    """Times an engine's requests.

    Args:
        processor: what takes the engine's outputs in this process; its ``process_outputs`` is replaced.
    """

    def __init__(self, processor: Any) -> None:
        self._states = processor.request_states
        self._process = processor.process_outputs
        self._timers: dict[str, Timer] = {}
        processor.process_outputs = self._note

    @contextmanager
    def timing(self, request_id: str) -> Iterator[Timer]:
        """Within it, the request is timed."""
        timer = self._timers[request_id] = Timer()
        try:
            yield timer
        finally:
            self._timers.pop(request_id, None)

    def _note(self, outputs: Sequence[Any], timestamp: float, *args: Any, **kwargs: Any) -> Any:
        for output in outputs:
            state = self._states.get(output.request_id)
            timer = None if state is None else self._timers.get(state.external_req_id)
            if timer is not None and output.finish_reason is not None:
                timer.ended = timestamp
        return self._process(outputs, timestamp, *args, **kwargs)
