"""When vLLM's engine ended a request: its answer may then wait for the process that it goes to.

That process plays games, or looks after many requests, and what it does meanwhile is not the engine's time. vLLM says
when with each of its outputs, but keeps it only together with all of its other statistics.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Ends:
    """Of an engine's requests, by their ids.

    Args:
        processor: what takes the engine's outputs in its client's process; its ``process_outputs`` is replaced.
    """

    def __init__(self, processor: Any) -> None:
        self._states = processor.request_states
        self._process = processor.process_outputs
        self._ended: dict[str, float] = {}
        processor.process_outputs = self._note

    def take(self, request_id: str, otherwise: float) -> float:
        """When the engine ended this request, by the clock ``time.monotonic``; ``otherwise``: it was broken off."""
        return self._ended.pop(request_id, otherwise)

    def _note(self, outputs: Sequence[Any], timestamp: float, *args: Any, **kwargs: Any) -> Any:
        for output in outputs:
            if output.finish_reason is not None and (state := self._states.get(output.request_id)) is not None:
                self._ended[state.external_req_id] = timestamp
        return self._process(outputs, timestamp, *args, **kwargs)
