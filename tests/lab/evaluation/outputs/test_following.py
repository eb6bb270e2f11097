"""An evaluation beside a training takes every checkpoint, as they come, and ends with the training."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.outputs import following
from recipe.spiral.lab.evaluation.outputs.following import follow
from recipe.spiral.lab.evaluation.settings import Refused, Settings
from tests.lab.evaluation.made_policies import composed


class Training:
    """A run that does the next thing whenever the evaluation has waited."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir, self.running = run_dir, True
        self.script: list[Callable[[], None]] = []
        self.waited = 0
        run_dir.mkdir()
        (run_dir / "config.yaml").write_text(f"run_dir: {run_dir}\n")

    def save(self, *numbers: int) -> None:
        for number in numbers:
            (self.run_dir / "checkpoints" / f"global_step_{number}").mkdir(parents=True)

    def remove(self, step: int) -> None:
        shutil.rmtree(self.run_dir / "checkpoints" / f"global_step_{step}")

    def end(self) -> None:
        self.running = False

    def sleep(self, seconds: float) -> None:
        assert seconds == 5
        self.waited += 1
        self.script.pop(0)()


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Training:
    made = Training(tmp_path / "run")
    monkeypatch.setattr(following, "is_in_use", lambda folder: made.running and folder == made.run_dir)
    return made


def settings(tmp_path: Path, **changes: Any) -> Settings:
    made = Settings.from_config(composed("follow=5", f"eval_dir={tmp_path}/eval"))
    return made.model_copy(update={"policies": [str(tmp_path / "run")], **changes})


class Evaluations:
    """Stands for them: leaves the results of a policy that wins more with every step."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, told: Settings) -> str:
        (entry,) = told.policies
        step = entry["step"]
        self.asked.append(entry)
        assert told.eval_dir.name == f"step_{step:06d}"
        assert told.cache == told.eval_dir.parents[1] / "eval-weights", "one cache beside eval_dir"
        told.eval_dir.mkdir(parents=True, exist_ok=True)
        shares = {outcome: {"value": step / 100} for outcome in ("win", "draw", "loss", "invalid")}
        run = entry.get("name", "run")
        row = {"policy": f"{run}/step_{step:06d}", "opponent": "random", "game": "Nim", "role": 0, **shares}
        other = {**row, "policy": "other/step_000099"}
        results = {"exploitability": [], "optimality": [], "results": [row, other], "benchmarks": {}}
        (told.eval_dir / "results.json").write_text(json.dumps(results))
        return ""

    @property
    def steps(self) -> list[int]:
        return [entry["step"] for entry in self.asked]


def test_what_is_there_and_what_comes_until_the_training_ends(tmp_path: Path, training: Training) -> None:
    training.save(10, 20)

    def last() -> None:
        training.save(40)
        training.end()

    training.script = [lambda: None, lambda: training.save(30), last]
    evaluate = Evaluations()
    text = follow(settings(tmp_path), evaluate, sleep=training.sleep)
    assert evaluate.steps == [10, 20, 30, 40] and training.waited == 3
    rows = list(csv.DictReader((tmp_path / "eval" / "curves.csv").open()))
    assert [(row["step"], row["Nim, player 0, random: win"]) for row in rows] == [
        *(("10", "0.1"), ("20", "0.2"), ("30", "0.3"), ("40", "0.4"))
    ]
    assert "0.400" in text and "loss" not in text


def test_of_a_run_that_has_ended_everything_is_measured_once(tmp_path: Path, training: Training) -> None:
    training.save(10)
    training.end()
    evaluate = Evaluations()
    follow(settings(tmp_path), evaluate, sleep=training.sleep)
    assert evaluate.steps == [10] and training.waited == 0


def test_a_linked_runs_curve_has_the_name_of_its_folder(tmp_path: Path, training: Training) -> None:
    training.save(10)
    training.end()
    (tmp_path / "latest").symlink_to(training.run_dir)
    follow(settings(tmp_path, policies=[str(tmp_path / "latest")]), Evaluations(), sleep=training.sleep)
    assert (tmp_path / "eval" / "curves.csv").is_file()


def test_a_run_that_saved_nothing_is_no_error(tmp_path: Path, training: Training) -> None:
    training.end()
    assert follow(settings(tmp_path), Evaluations()) == "no checkpoint has been measured yet"


def test_start_and_interval_choose(tmp_path: Path, training: Training) -> None:
    training.save(10, 20, 25, 30, 45)
    training.end()
    evaluate = Evaluations()
    entry = {"path": str(training.run_dir), "name": "mine", "start": 15, "interval": 10}
    follow(settings(tmp_path, policies=[entry]), evaluate)
    assert evaluate.steps == [20, 30, 45]
    assert evaluate.asked[0] == {"path": str(training.run_dir), "name": "mine", "step": 20}


def test_the_interval_counts_from_checkpoints_that_are_gone_too(tmp_path: Path, training: Training) -> None:
    training.save(10)

    def next_one() -> None:
        training.remove(10)
        training.save(15, 20)
        training.end()

    training.script = [next_one]
    evaluate = Evaluations()
    entry = {"path": str(training.run_dir), "interval": 10}
    follow(settings(tmp_path, policies=[entry]), evaluate, sleep=training.sleep)
    assert evaluate.steps == [10, 20]


def test_a_second_start_knows_of_the_first(tmp_path: Path, training: Training) -> None:
    training.save(10, 15)
    training.end()
    entry = {"path": str(training.run_dir), "interval": 10}
    first, told = Evaluations(), []
    follow(settings(tmp_path, policies=[entry]), first)
    training.remove(10)
    (tmp_path / "eval" / "step_000013").mkdir()  # was begun when it was killed
    training.save(20)
    second = Evaluations()
    text = follow(settings(tmp_path, policies=[entry]), second, show=told.append)
    assert (first.steps, second.steps) == ([10], [20]), "15 is not 10 steps after 10"
    assert "0.100" in text and "0.200" in text
    entry["interval"] = 1
    follow(settings(tmp_path, policies=[entry]), Evaluations(), show=told.append)
    assert "step 13: its evaluation was begun, and the run has removed the checkpoint since" in told


def test_checkpoints_may_lie_elsewhere(tmp_path: Path, training: Training) -> None:
    elsewhere = tmp_path / "big_disk"
    config = f"run_dir: {training.run_dir}\ntrainer: {{default_local_dir: {elsewhere}}}\n"
    (training.run_dir / "config.yaml").write_text(config)
    (elsewhere / "global_step_7").mkdir(parents=True)
    training.end()
    evaluate = Evaluations()
    follow(settings(tmp_path), evaluate)
    assert evaluate.steps == [7]


def test_a_checkpoint_that_the_run_removes_is_told_and_passed_over(tmp_path: Path, training: Training) -> None:
    training.save(10, 20)
    training.end()
    done, told = Evaluations(), []

    def evaluate(one: Settings) -> str:
        if one.policies[0]["step"] == 10:
            training.remove(10)
            raise FileNotFoundError("model_world_size_1_rank_0.pt")
        return done(one)

    follow(settings(tmp_path), evaluate, show=told.append)
    assert done.steps == [20]
    assert told[0] == "step 10: the run has removed the checkpoint before it was read"


def test_one_that_is_there_and_cannot_be_read_ends_it(tmp_path: Path, training: Training) -> None:
    training.save(10)

    def evaluate(one: Settings) -> str:
        raise Refused("checkpoint 10 is broken")

    with pytest.raises(Refused, match="checkpoint 10 is broken"):
        follow(settings(tmp_path), evaluate)


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ([], "one run"),
        (["a", "b"], "one run"),
        ([{"kind": "random"}], "one run"),
        (["/nowhere"], "/nowhere is no run .yet.: start the training first"),
        ([{"path": "run", "step": 3}], "step: not with follow"),
    ],
)
def test_it_follows_one_run_only(tmp_path: Path, training: Training, policies: Any, message: str) -> None:
    with pytest.raises(Refused, match=message):
        follow(settings(tmp_path, policies=policies), Evaluations())


@pytest.mark.parametrize("value", ["0", "-1", "often", "true"])
def test_a_look_needs_a_time(value: str) -> None:
    with pytest.raises(ValueError, match=r"^follow=.*: must be (greater than 0|a valid number)"):
        Settings.from_config(composed(f"follow={value}"))
