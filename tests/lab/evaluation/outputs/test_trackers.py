"""The results of a run's checkpoints in its trackers: what is logged, where, and once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.outputs.evaluation_trackers import log_results, metrics_of
from recipe.spiral.lab.evaluation.policies.evaluated_policy import Policy

CHECKPOINT = "checkpoints/global_step_20"


def shares(value: float) -> dict[str, Any]:
    return {name: {"value": value} for name in ("win", "draw", "loss", "invalid", "reward")}


def results(nash_conv: float = 0.5) -> dict[str, Any]:
    run, other = "mine/step_000020", "other/step_000020"
    return {
        "exploitability": [
            {"policy": policy, "game": "KuhnPoker", "nash_conv": nash_conv, "value": -0.1, "illegal": [0.01, 0.2]}
            for policy in (run, other, "(uniform play)")
        ],
        "optimality": [
            {
                "policy": run,
                "game": "TicTacToe",
                "all": {"share": 0.6, "critical": None},
                "against_random": {"share": 0.7},
            }
        ],
        "results": [
            {"policy": run, "opponent": "random", "game": "TicTacToe", "role": 1, **shares(0.25)},
            {"policy": run, "opponent": "random", "game": "TicTacToe", "role": None, **shares(0.5)},
        ],
        "benchmarks": {
            run: [
                {
                    "benchmark": "math500",
                    "samples": 4,
                    "pass_at": {"1": {"value": 0.1}},
                    "avg": {"value": 0.1},
                    "maj": {"value": None},
                }
            ]
        },
    }


EXPECTED = {
    "eval/KuhnPoker/nash_conv": 0.5,
    "eval/KuhnPoker/value": -0.1,
    "eval/KuhnPoker/illegal": 0.01,
    "eval/TicTacToe/optimal": 0.6,
    "eval/TicTacToe/optimal_against_random": 0.7,
    **{f"eval/random/TicTacToe/p1/{name}": 0.25 for name in ("win", "draw", "loss", "invalid", "reward")},
    "eval/math500/pass@1": 0.1,
    "eval/math500/avg@4": 0.1,
}


def test_only_the_runs_checkpoints_are_logged() -> None:
    assert metrics_of(results(), "mine") == {20: EXPECTED}


class WeightsAndBiases:
    """Its module: counts its own steps, and has the axes that it is told of."""

    def __init__(self) -> None:
        self.axes: set[tuple[str, str]] = set()
        self.logged: list[dict[str, float]] = []

    def define_metric(self, name: str, step_metric: str) -> None:
        self.axes.add((name, step_metric))

    def log(self, values: dict[str, float]) -> None:
        self.logged.append(values)


class Trackers:
    """verl's ``Tracking``: keeps what is logged, and where it would have written."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str, list[str], str, str]] = []
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.wandb = WeightsAndBiases()
        self.finished = 0
        self.logger: dict[str, Any] = {}

    def __call__(self, project: str, name: str, trackers: list[str]) -> Trackers:
        self.logger = {tracker: self.wandb if tracker == "wandb" else None for tracker in trackers}
        self.made.append((project, name, trackers, os.environ["TENSORBOARD_DIR"], os.environ["WANDB_RUN_ID"]))
        return self

    def log(self, values: dict[str, float], step: int, backend: list[str]) -> None:
        assert backend == [tracker for tracker in self.logger if tracker != "wandb"]
        self.logged.append((step, values))

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("TENSORBOARD_DIR", "WANDB_DIR", "WANDB_MODE", "WANDB_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "run"
    (folder / CHECKPOINT).mkdir(parents=True)
    (folder / "config.yaml").write_text(
        "trainer: {logger: [console, tensorboard, wandb], project_name: spiral, experiment_name: quick}"
    )
    (tmp_path / "eval").mkdir()
    return folder


def log(run: Path, made: Trackers, loggers: list[str] | None, found: dict[str, Any]) -> list[str]:
    (run.parent / "eval/results.json").write_text(json.dumps(found))
    said: list[str] = []
    snapshot = Policy("mine/step_000020", "model", {"path": str(run / CHECKPOINT)}, run="mine", step=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("verl.utils.tracking.Tracking", made)
        log_results(run.parent / "eval", [snapshot, Policy("tiny", "model", {})], loggers, said.append)
    return said


def test_they_are_logged_once_beside_the_runs_curves(run: Path) -> None:
    made = Trackers()
    (line,) = log(run, made, None, results())
    assert "at step 20 are in tensorboard, wandb" in line
    (entry,) = made.made
    assert entry[:4] == ("spiral", "quick-eval", ["tensorboard", "wandb"], str(run / "tensorboard"))
    assert made.logged == [(20, EXPECTED)] and made.finished == 1
    assert "TENSORBOARD_DIR" not in os.environ and "WANDB_RUN_ID" not in os.environ
    assert log(run, made, None, results()) == [] and len(made.made) == 1
    log(run, made, None, results(nash_conv=0.4))
    assert len(made.logged) == 2, "what has changed is logged again"
    assert made.made[1] == entry, "as the same run of Weights & Biases"
    assert made.wandb.axes == {("eval/*", "eval/step")}
    changed = {**EXPECTED, "eval/KuhnPoker/nash_conv": 0.4}
    assert made.wandb.logged == [{**EXPECTED, "eval/step": 20}, {**changed, "eval/step": 20}], "at no step of its own"


def test_others_or_none_may_be_chosen(run: Path) -> None:
    made = Trackers()
    assert log(run, made, [], results()) == [] and made.made == []
    log(run, made, ["file"], results())
    assert made.made[0][2] == ["file"]


def test_a_tracker_that_fails_ends_nothing(run: Path) -> None:
    class Failing(Trackers):
        def log(self, values: dict[str, float], step: int, backend: list[str]) -> None:
            raise OSError("no space")

    assert log(run, Failing(), None, results()) == ["mine: its trackers did not take the results (OSError: no space)"]
    made = Trackers()
    log(run, made, None, results())
    assert made.logged, "it is tried again"


#: As ``main_eval`` does it: whatever the command has started is ended at its end.
PROGRAM = """
import sys
from pathlib import Path
from recipe.spiral.lab.evaluation.policies.evaluated_policy import Policy
from recipe.spiral.lab.evaluation.outputs.evaluation_trackers import log_results
from recipe.spiral.processes.launch import clean_run

folder, snapshot = Path(sys.argv[1]), sys.argv[2]
with clean_run(folder):
    policy = Policy("mine/step_000020", "model", {"path": snapshot}, run="mine", step=20)
    log_results(folder, [policy], ["wandb"], print)
"""


@pytest.mark.e2e
def test_weights_and_biases_takes_them_without_a_word_of_its_own(run: Path) -> None:
    folder = run.parent / "eval"
    (folder / "results.json").write_text(json.dumps(results()))
    command = [sys.executable, "-c", PROGRAM, str(folder), str(run / CHECKPOINT)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=240, env={**environment, "WANDB_MODE": "offline"}
    )
    assert done.returncode == 0 and "at step 20 are in wandb" in done.stdout
    assert "Traceback" not in done.stderr and "wandb:" not in done.stdout + done.stderr, done.stderr
    assert list(run.glob("wandb/offline-run-*/*.wandb"))
