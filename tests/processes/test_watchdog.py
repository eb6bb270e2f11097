"""What the watchdog takes for a death, and what for a moment's trouble."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("ray")
from ray.exceptions import ActorUnavailableError, RayActorError, RayError, RaySystemError

from recipe.spiral.processes import watchdog
from recipe.spiral.processes.causes import CAUSE
from recipe.spiral.processes.watchdog import Watchdog

UNAVAILABLE = ActorUnavailableError("cannot be reached", b"\0" * 16)
DIED = RayActorError(error_msg="The actor died. Worker exit type: SYSTEM_ERROR. More.")


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


def test_a_death_ends_the_run(tmp_path: Path, answers: list[Any]) -> None:
    answers += [None, None, DIED]
    cause = watched(tmp_path, seconds=10)
    died = "the vLLM server 0.0 died (Worker exit type: SYSTEM_ERROR)"
    assert cause == f"{died}; start the run again to go on from its last checkpoint"


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
    answers += [RaySystemError("the connection is gone")]
    cause = watched(tmp_path, seconds=10)
    assert cause is not None and cause.startswith("the trainer has lost Ray (RaySystemError: ")
