"""When the engine ended a request is what it says itself, not when somebody looks."""

from types import SimpleNamespace
from typing import Any

from recipe.spiral.workers.engine.ends import Ends


def output(request_id: str, finish_reason: str | None = "length") -> Any:
    return SimpleNamespace(request_id=request_id, finish_reason=finish_reason)


def test_a_request_that_ended_has_the_engines_time_once() -> None:
    processed: list[Any] = []

    def process(outputs: Any, timestamp: float, statistics: Any) -> str:
        processed.append((len(outputs), timestamp, statistics))
        return "vLLM's"

    states = {f"{name}-1f3a": SimpleNamespace(external_req_id=name) for name in ("a", "b", "c")}
    processor = SimpleNamespace(request_states=states, process_outputs=process)
    ends = Ends(processor)
    given = [output("a-1f3a"), output("b-1f3a", None), output("gone")]
    assert processor.process_outputs(given, 5.0, None) == "vLLM's" and processed == [(3, 5.0, None)]
    assert processor.process_outputs([output("b-1f3a")], 6.0, None) == "vLLM's"
    assert [ends.take(name, 9.0) for name in ("a", "b", "c", "a")] == [5.0, 6.0, 9.0, 9.0]
