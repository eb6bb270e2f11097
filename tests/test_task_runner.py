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
    ("runtime", "profiler", "expected"),
    [
        ("fast", None, TaskRunnerHere),
        ("fast", "torch", TaskRunnerHere),
        ("fast", "nsys", RemoteTaskRunner),
        ("stock", None, RemoteTaskRunner),
    ],
)
def test_it_is_here_or_an_actor(runtime: str, profiler: str | None, expected: type) -> None:
    config = OmegaConf.create({"runtime": runtime, "global_profiler": {"tool": profiler}})
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


def test_a_training_that_fails_asks_who_died_before_verl_ends_its_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    def fit(manager: Any) -> None:
        raise RuntimeError("the disk is full")

    def run(self: Any, config: Any) -> None:
        self.config, self.trainer = config, SimpleNamespace(fit=fit)
        self.init_agent_loop_manager()
        try:
            self.trainer.fit(None)
        finally:
            order.append("the queue is closed")

    calls = {name: lambda name=name: order.append(name) for name in ("start", "blame", "stop")}
    monkeypatch.setattr(task_runner, "Watchdog", lambda *args, **more: SimpleNamespace(**calls))
    monkeypatch.setattr(task_runner, "is_fast", lambda: False)
    monkeypatch.setattr(task_runner._VerlTaskRunner, "run", run)
    monkeypatch.setattr(task_runner._VerlTaskRunner, "init_agent_loop_manager", lambda self: None)
    for part in ("_import_trainer", "_take_over"):
        monkeypatch.setattr(task_runner.TaskRunner, part, lambda self, config: None)
    monkeypatch.setattr(task_runner.TaskRunner, "_actors", lambda self: iter(()))
    with pytest.raises(RuntimeError, match="the disk is full"):
        task_runner.TaskRunner().run(OmegaConf.create({"run_dir": "run", "watchdog": "warn"}))
    assert order == ["start", "blame", "the queue is closed", "stop"]
