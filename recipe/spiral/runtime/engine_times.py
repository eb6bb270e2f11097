"""When vLLM's engine ended a request: its answer may then wait for the process that it goes to.

That process plays games, or looks after many requests, and what it does meanwhile is not the engine's time. vLLM says
when with each of its outputs, but keeps it only together with all of its other statistics.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Any


class Ends:
    """Times an engine's requests.

    Args:
        processor: what takes the engine's outputs in this process; its ``process_outputs`` is replaced.
    """

    def __init__(self, processor: Any) -> None:
        self._states = processor.request_states
        self._process = processor.process_outputs
        #: Of the requests that are timed; infinite until the engine ends them.
        self._ended: dict[str, float] = {}
        processor.process_outputs = self._note

    @contextmanager
    def timing(self, request_id: str) -> Iterator[Callable[[], float]]:
        """Within it, a call gives the seconds from the request's beginning to the engine's end; until now, where the
        engine did not end it, or has another clock."""
        began = time.monotonic()
        self._ended[request_id] = inf

        def seconds() -> float:
            ended, now = self._ended[request_id], time.monotonic()
            return (ended if began <= ended <= now else now) - began

        try:
            yield seconds
        finally:
            self._ended.pop(request_id, None)

    def _note(self, outputs: Sequence[Any], timestamp: float, *args: Any, **kwargs: Any) -> Any:
        for output in outputs:
            state = self._states.get(output.request_id)
            if state is not None and output.finish_reason is not None and state.external_req_id in self._ended:
                self._ended[state.external_req_id] = timestamp
        return self._process(outputs, timestamp, *args, **kwargs)
