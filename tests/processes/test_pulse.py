"""A dead process of a run is noticed, and one that the trainer ends itself is not blamed."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError, RayActorError

from recipe.spiral.processes import pulse
from recipe.spiral.processes.pulse import ON_PURPOSE, QUEUE, Pulse, said_last

DIED = """The actor died unexpectedly before finishing this task.
	class_name: FastServer
	actor_id: 01
	pid: 123
	name: vllm_server_0_0
	namespace: x
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker \
unexpectedly exits with a connection error code 2. End of file."""


class Method:
    def __init__(self, answer: Exception | None) -> None:
        self.answer = answer

    def remote(self) -> Any:
        return (self,)


class Ray:
    """The part of Ray that is asked."""

    def __init__(self, **answers: Exception | None) -> None:
        self.answers, self.util = answers, self

    def list_named_actors(self, all_namespaces: bool) -> list[dict[str, str]]:
        places = {"queue": QUEUE, "stranger": "another run"}
        return [{"name": name, "namespace": places.get(name, "own")} for name in self.answers]

    def get_runtime_context(self) -> Any:
        return SimpleNamespace(namespace="own")

    def get_actor(self, name: str, namespace: str) -> Any:
        method = Method(self.answers[name])
        return type("Actor", (), {"__ray_ready__": method, **({"engine_answers": method} if name == "server" else {})})

    def wait(self, refs: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return refs, []

    def get(self, ref: Any) -> None:
        if ref[0].answer is not None:
            raise ref[0].answer


@pytest.mark.parametrize(
    ("answers", "blamed", "at_the_end"),
    [
        ({"worker": None, "server": None}, False, False),
        ({"worker": None, "server": RayActorError(error_msg="dead")}, True, True),
        ({"worker": ActorUnavailableError("for a moment", None)}, False, False),
        ({"queue": RayActorError(error_msg=f"dead because {ON_PURPOSE}."), "worker": None}, False, False),
        ({"queue": RayActorError(error_msg="dead"), "worker": None}, True, True),
        ({"stranger": RayActorError(error_msg="dead"), "worker": None}, False, False),
    ],
)
def test_who_is_dead(
    answers: dict[str, Exception | None], blamed: bool, at_the_end: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulse, "ray", Ray(**answers))
    died, seen = threading.Event(), []
    watching = Pulse(lambda error: (seen.append(error), died.set()), interval=0.001, grace=0.001)
    watching.start()
    assert died.wait(0.1 if not blamed else 5) == blamed
    assert (watching.dead() is not None) == at_the_end
    assert [str(error) for error in seen] == ["dead"] * blamed


def test_a_run_that_ends_by_itself_has_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "ray", Ray(worker=RayActorError(error_msg="dead")))
    watching = Pulse(lambda error: pytest.fail("the run had ended"), interval=0.001, grace=5)
    watching.start()
    assert str(watching.dead()) == "dead"


def test_a_dead_process_says_its_last_lines(tmp_path: Path) -> None:
    error = RayActorError(error_msg=DIED)
    (logs := tmp_path / "session_latest" / "logs").mkdir(parents=True)
    (logs / "worker-ab-01-123.err").write_text("ValueError: no memory for a KV cache\n")
    (logs / "worker-ab-01-124.err").write_text("another\n")
    assert said_last(error, tmp_path).splitlines()[1:] == ["ValueError: no memory for a KV cache"]
    assert said_last(error, None) == said_last(OSError("x"), tmp_path) == ""
