"""When the engine ended a request is what it says itself, not when somebody looks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.runtime import engine_times as module
from recipe.spiral.runtime.engine_times import Ends

STATES = {f"{name}-1f3a": SimpleNamespace(external_req_id=name) for name in ("a", "b", "http")}


def output(request_id: str, finish_reason: str | None = "length") -> Any:
    return SimpleNamespace(request_id=request_id, finish_reason=finish_reason)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def test_a_request_takes_until_the_engine_ended_it(clock: list[float]) -> None:
    processed: list[Any] = []

    def process(outputs: Any, timestamp: float, statistics: Any) -> str:
        processed.append((len(outputs), timestamp, statistics))
        return "vLLM's"

    processor = SimpleNamespace(request_states=STATES, process_outputs=process)
    ends = Ends(processor)
    with ends.timing("a") as first, ends.timing("b") as second:
        clock[0] = 110.0
        given = [output("a-1f3a"), output("b-1f3a", None), output("gone"), output("http-1f3a")]
        assert processor.process_outputs(given, 104.0, None) == "vLLM's" and processed == [(4, 104.0, None)]
        assert (first(), second()) == (4.0, 10.0)
        assert processor.process_outputs([output("b-1f3a")], 109.0, None) == "vLLM's"
        assert (first(), second()) == (4.0, 9.0)
    assert not ends._ended, "of requests that nobody times, and of those that are over, nothing is kept"


@pytest.mark.parametrize("elsewhere", [3.0, 1e6])
def test_the_clock_of_an_engine_on_another_machine_says_nothing(clock: list[float], elsewhere: float) -> None:
    processor = SimpleNamespace(request_states=STATES, process_outputs=lambda *given: None)
    with Ends(processor).timing("a") as seconds:
        clock[0] = 110.0
        processor.process_outputs([output("a-1f3a")], elsewhere, None)
        assert seconds() == 10.0
