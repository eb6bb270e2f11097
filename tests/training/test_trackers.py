"""Trackers go on with the run that they have, from the step that it goes on from."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.processes.launch import TRACKER_VARIABLES, TRACKERS, one_run, tracked
from recipe.spiral.training.trackers import forget_later, going_on


def test_tensorboard_shows_nothing_of_steps_that_are_trained_anew(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator as ForScripts
    from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as ForThePages
    from verl.utils.tracking import Tracking

    def start(after: int, upto: int, value: float) -> None:
        made = Tracking("project", "name", "tensorboard")
        forget_later(made.logger, after)
        for step in range(after + 1, upto + 1):
            made.log({"loss": value}, step)
        made.finish()
        time.sleep(1.1)  # files are named by the second

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TENSORBOARD_DIR", str(tmp_path))
        start(0, 13, 1.0)
        start(10, 12, 2.0)
    expected = [*((step, 1.0) for step in range(1, 11)), (11, 2.0), (12, 2.0)]
    (scripts := ForScripts(str(tmp_path))).Reload()
    assert [(point.step, point.value) for point in scripts.Scalars("loss")] == expected
    (pages := ForThePages(str(tmp_path))).Reload()
    assert [(point.step, point.tensor_proto.float_val[0]) for point in pages.Tensors("loss")] == expected
    forget_later({}, 10)


class Verls:
    """verl's ``Tracking``: what it was asked for, and that it ends MLflow's run when it is collected."""

    made: list[tuple[list[str], Any]]
    ended: int

    def __init__(self, project_name: str, experiment_name: str, default_backend: list[str], config: Any = None) -> None:
        Verls.made.append((default_backend, config))
        self.logger = {name: object() for name in default_backend}

    def __del__(self) -> None:
        Verls.ended += "mlflow" in self.logger


def test_trackers_go_on_with_the_run_that_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow, trackio, resumed = ModuleType("mlflow"), ModuleType("trackio"), []
    mlflow.active_run = lambda: SimpleNamespace(info=SimpleNamespace(run_id="f00"))  # type: ignore[attr-defined]
    trackio.init = lambda **given: resumed.append((given["name"], given["resume"]))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    monkeypatch.setitem(sys.modules, "trackio", trackio)
    monkeypatch.setenv("MLFLOW_RUN_ID", "")  # what is set in between is taken back
    monkeypatch.delenv("MLFLOW_RUN_ID")
    Verls.made, Verls.ended = [], 0
    (other := tmp_path / "other").mkdir()
    asked, open_ = {"lr": 1.0}, going_on(Verls, tmp_path)
    first = open_("project", "name", ["mlflow", "trackio", "wandb"], asked)
    assert Verls.made == [(["mlflow", "trackio", "wandb"], asked)] and resumed == []
    known = tracked(tmp_path)
    assert (known["mlflow"], known["trackio"]) == ("f00", "name") and re.fullmatch("[0-9a-f]{21}", known["run"])
    second = open_("project", "name", ["mlflow", "trackio", "wandb"], asked)
    assert Verls.made[1:] == [(["trackio", "wandb"], asked), (["mlflow"], None)]
    assert os.environ["MLFLOW_RUN_ID"] == "f00" and resumed == [("name", "allow")]
    assert second.logger.keys() == first.logger.keys() and Verls.ended == 0
    assert tracked(tmp_path) == known and tracked(other)["run"] != known["run"]
    assert one_run("x") == {
        **{"WANDB_RUN_ID": "x", "WANDB_RESUME": "allow", "SWANLAB_RUN_ID": "x", "SWANLAB_RESUME": "allow"},
        "CLEARML_SET_ITERATION_OFFSET": "0",
    }
    assert one_run("x").keys() <= {*TRACKER_VARIABLES}
    (tmp_path / TRACKERS).write_text("[]")
    assert tracked(tmp_path)["run"] != known["run"], "a damaged file is written anew"
