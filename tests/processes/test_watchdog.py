"""What the watchdog takes for a death, and what for a moment's trouble."""

from __future__ import annotations

import itertools
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RaySystemError, RayTaskError

from recipe.spiral.processes import watchdog
from recipe.spiral.processes.causes import CAUSE
from recipe.spiral.processes.engine_failure import EngineFailure
from recipe.spiral.processes.run_log import LOG
from recipe.spiral.processes.watchdog import Watchdog, _Steps

UNAVAILABLE = ActorUnavailableError("cannot be reached", b"\0" * 16)
GONE = RaySystemError("the connection is gone")
ENGINE_DIED = RayTaskError("engine_answers", "Traceback ...", EngineFailure("the vLLM server died: out of memory"))
DIED = RayActorError(error_msg="The actor died. Worker exit type: SYSTEM_ERROR. More.")
#: As Ray has it a minute after a raylet was stopped: where the trainer is on that machine, and elsewhere.
_BEGIN = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: WorkerDict\n\tactor_id: f461\n\tpid: 7614\n"
)
OWNER_LOST = RayActorError(
    error_msg=f"{_BEGIN}The actor is dead because its owner has died. Owner Id: 01 Owner Ip address: 192.0.2.2 Owner "
    "worker exit type: SYSTEM_ERROR Worker exit detail: Owner's node has crashed."
)
NODE_LOST = RayActorError(
    error_msg=f"{_BEGIN}The actor died because its node has died. Node Id: f5c5\n\tthe actor's node was terminated "
    "unexpectedly: health check failed due to missing too many heartbeats"
)
LOST = "Ray lost the machine of the vLLM server 0.0: its raylet was ended or stopped, or had no time to answer"


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the actor answers, one after the other, and the last for ever; an error is raised."""
    told: list[Any] = []

    def wait(refs: list[int], **options: Any) -> tuple[list[int], list[int]]:
        if isinstance(told[0], RaySystemError):
            raise told[0]
        return refs, []

    def get(ref: int) -> None:
        answer = told.pop(0) if len(told) > 1 else told[0]
        if isinstance(answer, Exception):
            raise answer

    monkeypatch.setattr(watchdog, "ray", SimpleNamespace(wait=wait, get=get))
    monkeypatch.setattr(watchdog, "GRACE", 0.0)
    monkeypatch.setattr(os, "_exit", lambda status: None)
    return told


def watched(run_dir: Path, patience: float = 60.0, seconds: float = 0.5) -> str | None:
    """The cause that the watchdog wrote within these seconds."""
    count = iter(range(10**9))
    ready = SimpleNamespace(remote=lambda: next(count))
    dog = Watchdog({"vLLM server 0.0": SimpleNamespace(__ray_ready__=ready)}, run_dir, 0.001, patience)
    dog.start()
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (run_dir / CAUSE).exists():
        time.sleep(0.01)
    time.sleep(0.05)
    dog.stop()
    return (run_dir / CAUSE).read_text() if (run_dir / CAUSE).exists() else None


@pytest.mark.parametrize(
    ("death", "said"),
    [
        (DIED, "the vLLM server 0.0 died (Worker exit type: SYSTEM_ERROR)"),
        (ENGINE_DIED, "the vLLM server died: out of memory"),
        (OWNER_LOST, LOST),
        (NODE_LOST, LOST),
    ],
)
def test_a_death_ends_the_run(tmp_path: Path, answers: list[Any], death: Exception, said: str) -> None:
    answers += [None, None, death]
    assert watched(tmp_path, seconds=10) == f"{said}; start the run again to go on from its last checkpoint"


@pytest.mark.parametrize(
    ("answer", "said"), [(ENGINE_DIED, "died: out of memory; start"), (None, ""), (UNAVAILABLE, ""), (GONE, "")]
)
def test_a_trainer_that_fails_asks_whether_somebody_died(
    tmp_path: Path, answers: list[Any], answer: Exception | None, said: str
) -> None:
    answers.append(answer)
    ready = SimpleNamespace(remote=lambda: 0)
    Watchdog({"vLLM server 0.0": SimpleNamespace(__ray_ready__=ready)}, tmp_path).blame()
    assert said in (tmp_path / CAUSE).read_text() if said else not (tmp_path / CAUSE).exists()


@pytest.mark.parametrize("trouble", [UNAVAILABLE, RayError("odd")])
def test_a_moments_trouble_does_not(tmp_path: Path, answers: list[Any], trouble: Exception) -> None:
    answers += [None, trouble, trouble, None]
    assert watched(tmp_path) is None
    assert answers == [None]


@pytest.mark.parametrize("trouble", [UNAVAILABLE, RayError("odd")])
def test_trouble_that_stays_does(tmp_path: Path, answers: list[Any], trouble: Exception) -> None:
    answers += [None, trouble]
    cause = watched(tmp_path, patience=0.05, seconds=10)
    assert cause is not None and cause.startswith("the vLLM server 0.0 has not answered for 0 s (")


def test_a_trainer_that_lost_ray_ends_with_a_line(tmp_path: Path, answers: list[Any]) -> None:
    answers += [GONE]
    cause = watched(tmp_path, seconds=10)
    assert cause is not None and cause.startswith("the trainer has lost Ray (RaySystemError: ")


class StandsStill(threading.Event):
    """What a watchdog waits with, in a process that is stopped once."""

    seconds = 0.0

    def wait(self, timeout: float | None = None) -> bool:
        time.sleep(self.seconds)
        self.seconds = 0.0
        return super().wait(timeout)


@pytest.mark.parametrize("action", ["warn", "stop", "off"])
def test_a_trainer_that_was_stopped_itself_blames_nobody(
    tmp_path: Path, answers: list[Any], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    answers += [None]
    late, ready = [3], watchdog.ray.wait
    dog = Watchdog(
        {"policy worker 0": SimpleNamespace(__ray_ready__=SimpleNamespace(remote=itertools.count().__next__))},
        tmp_path,
        0.01,
        on_silence=action,
    )
    dog._stop = StandsStill()

    def wait(refs: list[int], **options: Any) -> tuple[list[int], list[int]]:
        if dog._stop.seconds or late[0] == 0:
            return ready(refs)
        late[0] -= 1  # the answers come a moment after it goes on
        return [], refs

    monkeypatch.setattr(watchdog.ray, "wait", wait)
    monkeypatch.setattr(watchdog, "FIRST", 0.5)
    dog._stop.seconds = 1.2
    dog.start()
    time.sleep(2)
    dog.stop()
    lines = (tmp_path / LOG).read_text().splitlines() if (tmp_path / LOG).exists() else []
    said = ["the trainer itself stood still for 1s: it was stopped, or had no time"]
    assert lines == (said if action != "off" else []) and not (tmp_path / CAUSE).exists()


def test_a_standstill_is_no_part_of_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trainer goes on, and may end the step before the watchdog looks."""
    now, step = [0.0], [0]
    monkeypatch.setattr(watchdog, "time", SimpleNamespace(monotonic=lambda: now[0]))
    steps = _Steps(lambda: step[0])
    now[0], step[0] = 30.0, 1
    assert steps.limit() == 90
    now[0], step[0] = 230.0, 2
    steps.leave_out(180.0)
    assert steps.limit() == 90


@pytest.mark.parametrize("action", ["warn", "stop", "off"])
def test_who_is_silent_for_several_steps_is_named(
    tmp_path: Path, answers: list[Any], monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    """After a time that follows from the run's own steps; a busy actor answers late, and is let be."""
    answers += [None]
    silent: set[str] = set()
    ready = watchdog.ray.wait

    def wait(refs: list[tuple[str, int]], **options: Any) -> tuple[list[Any], list[Any]]:
        return ready([ref for ref in refs if ref[0] not in silent])

    monkeypatch.setattr(watchdog.ray, "wait", wait)
    monkeypatch.setattr(watchdog, "LEAST", 0.05)
    count = itertools.count()
    busy = SimpleNamespace(__ray_ready__=SimpleNamespace(remote=lambda: ("worker", next(count))))
    engine = SimpleNamespace(
        __ray_ready__=SimpleNamespace(remote=lambda: ("server", next(count))),
        engine_answers=SimpleNamespace(remote=lambda: ("engine", next(count))),
    )
    step = [0]
    actors = {"policy worker 0": busy, "vLLM server 0.0": engine}
    dog = Watchdog(actors, tmp_path, 0.005, step=lambda: step[0], on_silence=action)
    dog.start()
    time.sleep(0.3)
    step[0] = 1  # it took 0.3 s
    silent.add("worker")
    time.sleep(0.4)
    silent.clear()
    time.sleep(0.1)
    assert not (tmp_path / LOG).exists(), "a long time for a minute, and not for a step"
    silent.add("engine")
    time.sleep(1.5)
    silent.clear()
    time.sleep(0.1)
    step[0] = 2
    time.sleep(0.1)
    dog.stop()
    assert action != "warn" or dog._steps.limit() < 3, "a second hang is noticed as soon as the first"
    lines = (tmp_path / LOG).read_text().splitlines() if action != "off" else []
    assert bool(lines) == (tmp_path / LOG).exists()
    if action != "off":
        assert re.fullmatch(r"the vLLM server 0\.0 has not answered since \d\d:\d\d:\d\d, for 1s: .*", lines[0])
    assert lines[1:] == (["the vLLM server 0.0 answers again, after 2s"] if action == "warn" else [])
    cause = (tmp_path / CAUSE).read_text() if (tmp_path / CAUSE).exists() else ""
    assert ("has not answered since" in cause and "start the run again" in cause) == (action == "stop")
