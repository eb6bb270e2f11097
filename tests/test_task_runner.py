"""Where the task runner is, and what it finds there."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

pytest.importorskip("verl")
from recipe.spiral import task_runner
from recipe.spiral.task_runner import RemoteTaskRunner, TaskRunnerHere, task_runner_class


@pytest.mark.parametrize(
    ("profiler", "expected"),
    [(None, TaskRunnerHere), ("torch", TaskRunnerHere), ("nsys", RemoteTaskRunner)],
)
def test_it_is_here_or_an_actor(profiler: str | None, expected: type) -> None:
    config = OmegaConf.create({"global_profiler": {"tool": profiler}})
    assert task_runner_class(config) is expected


def test_in_the_copy_it_has_the_variables_of_the_job_and_starts_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    context = SimpleNamespace(runtime_env={"env_vars": {"OF_THE_JOB": "1", "TOKENIZERS_PARALLELISM": "true"}})
    fake = SimpleNamespace(get_runtime_context=lambda: context, put=lambda value: ("ref", value))
    monkeypatch.setattr(task_runner, "ray", fake)
    monkeypatch.setattr(task_runner, "torch", SimpleNamespace(set_num_threads=ran.append))
    monkeypatch.setattr(task_runner.TaskRunner, "run", lambda self, config: ran.append(config))
    monkeypatch.setenv("OF_THE_JOB", "0")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
    runner = TaskRunnerHere(ran.append).remote()
    assert os.environ["OF_THE_JOB"] == "1" and os.environ["TOKENIZERS_PARALLELISM"] == "false"
    assert runner.run.remote("the config") == ("ref", None)
    assert ran == [1, True, "the config"]


def test_nobody_is_blamed_for_what_verl_ends_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends TransferQueue's processes as soon as ``fit`` has failed."""
    done: list[str] = []
    steps = {name: lambda name=name: done.append(name) for name in ("start", "blame", "stop")}
    monkeypatch.setattr(task_runner, "Watchdog", lambda *given, **more: SimpleNamespace(**steps))
    monkeypatch.setattr(task_runner._VerlTaskRunner, "init_agent_loop_manager", lambda self: None)
    monkeypatch.setattr(task_runner.TaskRunner, "_actors", lambda self: [])
    runner = task_runner.TaskRunner()
    runner.config = SimpleNamespace(run_dir="run", watchdog="warn")

    def fail(manager: object) -> None:
        raise OSError("the disk is full")

    runner.trainer = SimpleNamespace(fit=fail)
    runner.init_agent_loop_manager()
    with pytest.raises(OSError, match="full"):
        runner.trainer.fit(None)
    assert done == ["start", "blame", "stop"]
