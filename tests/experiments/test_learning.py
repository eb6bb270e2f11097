"""Experiments on learning: what is run, what is run again, and what of it the page says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from experiments import learning, pages
from experiments.curve_points import Point, average_policy, points_of
from experiments.learning import Failed, Run, gather, measure, measure_last, plan, train
from experiments.learning_page import EXPERIMENTS, OWN_PAST, WORST_PAST
from experiments.result import Curve, commits_of
from recipe.spiral.lab.evaluation.exploitability.information_sets import game_tree
from recipe.spiral.lab.evaluation.exploitability.optimality import exact_results
from recipe.spiral.lab.evaluation.exploitability.tabulated import uniform
from recipe.spiral.lab.evaluation.outputs.points import AT_ZERO
from recipe.spiral.lab.sweep.jobs import State
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.storage.record_folder import RecordFolder
from tests.experiments.test_composed import made_model

CONFIGS = Path(learning.__file__).with_name("config")
#: What is read of a run's config.
RUN = """
batch_unit: games
actor_rollout_ref: {model: {path: /the/model}}
prompt: {template: qwen3, style: dialogue}
data:
  {train_batch_size: BATCH, max_prompt_length: 100, max_response_length: 10, apply_chat_template_kwargs: {think: false}}
"""
#: A program in place of the trainer: it leaves the files of a run, or fails with +fail=true.
TRAINER = """
import sys
from pathlib import Path
given = dict(argument.split("=", 1) for argument in sys.argv[1:] if "=" in argument)
folder = Path(given["run_dir"].strip("'"))
with (folder / "starts").open("a") as file:
    file.write("x")
if given.get("+fail") == "true":
    sys.exit(1)
(folder / "config.yaml").write_text("data: {train_batch_size: 100}")
"""


def config(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        made: Any = OmegaConf.to_container(
            compose("kuhn", overrides=["steps=20", "every=10", f"work={tmp_path}", "seeds=[0,1]"]), resolve=True
        )
    return {**made, "overrides": [], **changes}


def results(steps: tuple[int, ...], nash_conv: float) -> dict[str, Any]:
    """``results.json`` with an exploitability that falls from step to step."""

    def row(policy: str, value: float) -> dict[str, Any]:
        figures = {"nash_conv": value, "nash_conv_as_judged": value + 0.1, "illegal_in_play": 0.01}
        return {"policy": policy, "game": "KuhnPoker", "illegal": [0.02, 0.03], **figures}

    rows = [row(f"run/step_{step:06d}", nash_conv / (step or 10)) for step in reversed(steps)]
    rows += [row(f"run, average of {len(steps)}", 0.2), row("(uniform play)", 11 / 12)]
    return {"exploitability": rows, "optimality": [], "results": [], "benchmarks": {}}


def games_row(policy: str, role: int | None, win: float) -> dict[str, Any]:
    values = {"win": win, "draw": 0.0, "loss": 1 - win, "invalid": 0.0}
    shares = {name: {"value": value, "low": value - 0.1, "high": value + 0.1} for name, value in values.items()}
    return {"policy": policy, "opponent": "random", "game": "Nim", "role": role, **shares}


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of ``main_spiral``."""
    program = tmp_path / "trainer.py"
    program.write_text(TRAINER)
    sweep = learning.Sweep

    def instead(jobs: Any, folder: Any, at_once: int, command: list[str], on_start: Any) -> Any:
        assert command[1:] == ["-m", "recipe.spiral.main_spiral"]
        return sweep(jobs, folder, at_once, [command[0], str(program)], lambda line: None, on_start)

    monkeypatch.setattr(learning, "Sweep", instead)
    return program


def test_every_arm_is_trained_with_every_seed_in_a_folder_of_its_own(tmp_path: Path) -> None:
    runs = plan(config(tmp_path, arms={"a, of 2": ["+x=1"], "b": []}))
    assert [(run.arm, run.seed) for run in runs] == [("a, of 2", 0), ("b", 0), ("a, of 2", 1), ("b", 1)]
    assert len({run.folder for run in runs}) == len({run.job.config for run in runs}) == 4
    assert {"+x=1", "seed=0", "trainer.total_training_steps=20", "trainer.save_freq=10"} <= set(runs[0].job.arguments)
    assert [run.folder.parent for run in runs[:2]] == [tmp_path / "a_of_2", tmp_path / "b"]


def test_every_seed_is_trained_from_every_warm_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipe.spiral.lab.models.tiny.ensure", made_model)
    runs = plan(config(tmp_path, arms={"a": [], "b": []}, warm_starts=[0, 3]))
    places = [(run.seed, run.start, run.arm) for run in runs]
    assert places == [(seed, start, arm) for seed in (0, 1) for start in (0, 3) for arm in "ab"]
    assert len({run.folder for run in runs}) == len({run.job.name for run in runs}) == 8
    assert runs[2].job.name == "a, seed 0, warm start 3"
    assert "actor_rollout_ref.model.path='/usual/chat/3'" in runs[2].job.arguments


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"warm_starts": [1, 1]}, "warm_starts="),
        ({"seeds": []}, "seeds="),
        ({"seeds": 3}, "seeds=3: must be a list"),
        ({"seeds": [1, 1]}, "seeds="),
        ({"seeds": ["0"]}, "seeds="),
        ({"arms": {}}, "arms"),
        ({"steps": 15}, "steps=15, every=10"),
        ({"every": 0}, "every=0"),
        ({"name": "mine"}, "name=mine"),
        ({"mean_over": 0}, "mean_over=0"),
        ({"targets": [{"measure": "NashConv", "games": 100, "of": "last"}]}, "at_most or at_least"),
        ({"targets": [{"measure": "NashConv", "games": 100, "of": "first", "at_most": 1}]}, "last, mean or worst mean"),
        ({"arms": {"a": ["no.such.key=1"]}}, "no.such.key"),
    ],
)
def test_what_cannot_be_run_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        plan(config(tmp_path, **change))


def test_what_is_trained_is_not_trained_again_and_with_other_settings_it_is_another_run(
    tmp_path: Path, trainer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(config(tmp_path))
    present = iter("abc")
    monkeypatch.setattr(learning, "current_commit", lambda: next(present))
    train(runs, tmp_path)
    train(runs, tmp_path)
    assert [(run.folder / "starts").read_text() for run in runs] == ["x", "x"]
    assert [commits_of([run.folder]) for run in runs] == [["a"], ["b"]], "the code when each of them started"
    monkeypatch.setattr(learning, "current_commit", lambda: "d")
    longer = plan(config(tmp_path, steps=40))
    train(longer, tmp_path)
    assert [(run.folder / "starts").read_text() for run in [*runs, *longer]] == ["x"] * 4


def test_a_preset_that_has_changed_makes_another_run(tmp_path: Path) -> None:
    preset = tmp_path / "presets" / "experiment" / "mine.yaml"
    preset.parent.mkdir(parents=True)
    folders = set()
    for rate in ("1e-4", "2e-4", "1e-4"):
        preset.write_text(f"# @package _global_\nactor_rollout_ref: {{actor: {{optim: {{lr: {rate}}}}}}}\n")
        settings = config(
            tmp_path, overrides=["--config-dir", str(tmp_path / "presets"), "+experiment=mine"], seeds=[0]
        )
        folders.add(plan(settings)[0].job.folder)
    assert len(folders) == 2


def test_a_run_that_fails_does_not_end_the_others_and_is_named(tmp_path: Path, trainer: Path) -> None:
    runs = plan(config(tmp_path, arms={"bad": ["+fail=true"], "good": []}, seeds=[3]))
    with pytest.raises(Failed, match="bad, seed 3") as failed:
        train(runs, tmp_path)
    assert "good" not in str(failed.value) and State.read(runs[1].job.folder).status == "ok"


def test_an_evaluation_that_is_done_is_not_made_again_unless_there_is_more_to_measure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    class Done:
        returncode = 0

    def evaluation(command: list[str], timeout: float) -> Done:
        asked.append(command)
        folder = Path(
            next(word for word in command if word.startswith("eval_dir=")).removeprefix("eval_dir=").strip("'")
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "results.json").write_text(json.dumps({}))
        return Done()

    def trained(run: Run) -> Run:
        run.folder.mkdir(parents=True, exist_ok=True)
        (run.folder / "config.yaml").write_text(RUN.replace("BATCH", "100"))
        return run

    monkeypatch.setattr(learning.subprocess, "run", evaluation)
    for steps in (20, 20, 40):
        settings = config(tmp_path, steps=steps, measure_last=["games=[Nim]"], seeds=[0])
        measure(trained(plan(settings)[0]), settings)
        measure_last(plan(settings)[0], settings)
    assert len(asked) == 4, "both of them twice: 20 steps, and 40"
    assert any(word.endswith("', step: 40}]") for word in asked[-1]) and "games=[Nim]" in asked[-1]
    start = "{name: run/step_000000, kind: model, path: '/the/model', template: qwen3, style: dialogue}"
    assert "opponents=[]" in asked[0] and any(word.endswith(f",{start}]") for word in asked[0])
    assert {"data.max_prompt_length=100", "data.max_response_length=10"} <= set(asked[0])
    assert "+data.apply_chat_template_kwargs.think=false" in asked[0], "the start is asked as the run's checkpoints"
    Done.returncode = 1
    settings = config(tmp_path, steps=60, seeds=[0])
    with pytest.raises(Failed, match="status 1"):
        measure(trained(plan(settings)[0]), settings)


def test_what_only_some_checkpoints_have_is_no_curve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = results((10, 20), 10.0)
    monkeypatch.setattr(learning, "measure", lambda run, config: measured)
    settings = config(tmp_path, seeds=[0])
    (run,) = plan(settings)
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text(RUN.replace("BATCH", "100"))
    assert [point.games for point in learning.measured_curve(run, settings).points] == [1000, 2000]
    measured["results"].append({**games_row("run/step_000020", 0, 0.5), "opponent": "run/step_000010"})
    with pytest.raises(Failed, match=r"self-play, seed 0: .* Nim, player 0, run/step_000010: draw, .*measure_last"):
        learning.measured_curve(run, settings)


def test_a_reference_that_moves_is_measured_by_the_runs_own_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = results((0, 10, 20), 10.0)
    monkeypatch.setattr(learning, "measure", lambda run, config: measured)
    settings = config(tmp_path, seeds=[0])
    (run,) = plan(settings)
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text(RUN.replace("BATCH", "100"))
    metrics = MetricsFile(run.folder)
    for step in (10, 20):
        metrics.log({"games/count": 100}, step)
        metrics.log({"val-core/KuhnPoker/reference/nash_conv": step / 100}, step)
    points = learning.measured_curve(run, settings).points
    assert [point.measures["NashConv of the reference"] for point in points] == [1.0, 0.1, 0.2]


def test_points_come_in_the_order_of_their_steps() -> None:
    points = points_of(results((10, 20), 10.0), "run", games=lambda step: 128 * step)
    assert [(point.step, point.games, point.measures["NashConv"]) for point in points] == [
        (10, 1280, 1),
        (20, 2560, 0.5),
    ]
    assert points[0].measures["illegal"] == 0.01 and points[0].measures["illegal, worst"] == 0.03
    assert average_policy(results((10, 20), 10.0), "run") == {"KuhnPoker": 0.2}


def test_points_have_the_games_of_each_role_and_benchmarks_and_nobody_elses() -> None:
    rows = [games_row("run/step_000010", role, win) for role, win in ((0, 0.75), (1, 0.25), (None, 0.5))]
    rows += [
        games_row("random", 0, 0.5),
        games_row("other/step_000010", 0, 0.9),
        games_row("other/step_000020", 0, 0.9),
    ]
    score = {"benchmark": "aime24", "avg": {"value": 0.3}, "maj": {"value": 0.4}, "pass_at": {"4": {"value": 0.6}}}
    asked = {"run/step_000010": [score], "other/step_000010": [score]}
    settings = {"exploitability": [], "optimality": [], "results": rows, "benchmarks": asked}
    (point,) = points_of(settings, "run", games=lambda step: step)
    assert {name: value for name, value in point.measures.items() if name.endswith("win")} == {
        "Nim, player 0, random: win": 0.75,
        "Nim, player 1, random: win": 0.25,
    }
    assert {name: value for name, value in point.measures.items() if name.startswith("aime24")} == {
        "aime24: avg": 0.3,
        "aime24: maj": 0.4,
        "aime24: pass@4": 0.6,
    }
    assert points_of({**settings, "results": rows[3:], "benchmarks": {}}, "run", games=lambda step: step) == []


def test_where_batches_are_turns_the_games_are_counted(tmp_path: Path) -> None:
    run = plan(config(tmp_path))[0]
    run.folder.mkdir(parents=True)
    (run.folder / "config.yaml").write_text("batch_unit: turns")
    games = RecordFolder(run.folder / "games")
    for step in (1, 2):
        keys = [GameKey("train", 0, step, index) for index in range(step + 2)]
        records = [GameRecord(key, "KuhnPoker", ("policy", "policy"), (0, 1)) for key in keys]
        records[0].discarded = "surplus"
        games.write("train", step, records)
    assert [learning.games_until(run)(step) for step in (0, 1, 2)] == [0, 2, 5]


def test_the_page_says_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config(tmp_path, steps=20)
    settings["targets"].append({"measure": "NashConv", "games": 120000, "at_most": 0.5, "of": "mean"})
    runs = plan(settings)
    monkeypatch.setattr(learning, "measure", lambda run, config: results((10, 20), 8.0 + run.seed))
    for run in runs:
        run.folder.mkdir(parents=True)
        (run.folder / "config.yaml").write_text(RUN.replace("BATCH", "1300"))
        State("ok", seconds=60.0).write(run.folder)
    result = gather(runs, [learning.measured_curve(run, settings) for run in runs], settings, "python -m it", ["0123"])
    assert (result.games, result.minutes, result.seeds) == (52000, 2.0, (0, 1))
    assert [row["NashConv"] for row in result.rows] == [0.4, 0.45]
    assert [row["NashConv, mean"] for row in result.rows] == [0.4, 0.45], "the checkpoint before is too long ago"
    docs = tmp_path / "docs"
    result.write(docs)
    pages.regenerate(docs)
    text = (docs / "kuhn.md").read_text()
    assert "NashConv](README.md#tables) after 26,000 games" in text and "| self-play | 0.425 ± 0.318 |" in text
    assert "| NashConv, mean: at most 0.5 after 26,000 games | 0.400, 0.450 reached |" in text
    assert "| NashConv, mean: at most 0.35 after 51,000 games | run too short |" in text
    assert "| illegal, worst mean: at most 0.02 after 120,000 games | run too short |" in text
    before = "0.400, 0.450 reached earlier; run too short"
    assert f"| NashConv, mean: at most 0.5 after 120,000 games | {before} |" in text
    assert result.figures["settings"]["self-play"]["trainer.total_training_steps"] == 20
    assert (docs / "kuhn.png").stat().st_size > 1000


def test_where_games_are_measured_the_page_has_the_start_and_the_end(tmp_path: Path) -> None:
    with initialize_config_dir(str(CONFIGS), version_base=None):
        settings: Any = OmegaConf.to_container(compose("tictactoe", overrides=[f"work={tmp_path}"]), resolve=True)
    rows = [games_row(f"run/step_{step:06d}", role, 0.2 + step / 1000) for step in (0, 200, 400) for role in (0, 1)]
    other = [{**row, "game": "TicTacToe"} for row in rows]
    measured = {"exploitability": [], "optimality": [], "results": [*rows, *other], "benchmarks": {}}
    curve = Curve(points_of(measured, "run", lambda step: 128 * step), {}, {}, 60.0)
    result = gather(plan(settings), [curve], settings, "python -m it", ["0123"])
    docs = tmp_path / "docs"
    result.write(docs)
    pages.regenerate(docs)
    text = (docs / "tictactoe.md").read_text()
    won, lost = "20.0% → 60.0% [50.0%, 70.0%]", "80.0% → 40.0% [30.0%, 50.0%]"
    assert "after 51,200 games" in text and f"| self-play | 0, random | {won} | {lost} |" in text
    assert "Nim" not in text, "it was not trained on"
    assert "perfect: loss: at most 0.02 after 153,600 games | not measured |" in text
    assert "25,600" not in text and (docs / "tictactoe.png").stat().st_size > 1000


def test_over_seeds_the_start_and_the_end_have_means(tmp_path: Path) -> None:
    """As the quick loop computes them, without intervals of their own."""
    with initialize_config_dir(str(CONFIGS), version_base=None):
        settings: Any = OmegaConf.to_container(compose("tictactoe_lines", overrides=[f"work={tmp_path}"]), resolve=True)
    settings = {**settings, "arms": {"asked": []}, "seeds": [0, 1]}
    tree = game_tree("TicTacToe")
    uniform_play = exact_results(tree, uniform(tree))
    curves = []
    for win in (0.90, 0.94):
        end = {**uniform_play, "TicTacToe, player 0, random: win": win}
        past = {OWN_PAST: win - 0.6, WORST_PAST: -0.2}
        past |= {
            f"TicTacToe, player {r}, {o}: loss{AT_ZERO}": (1 - win) * r for r in (0, 1) for o in ("random", "perfect")
        }
        curves.append(Curve([Point(0, 0, uniform_play), Point(300, 38400, end)], past, {}, 60.0))
    result = gather(plan(settings), curves, settings, "python -m it", ["0123"])
    docs = tmp_path / "docs"
    result.write(docs)
    pages.regenerate(docs)
    text = (docs / "tictactoe_lines.md").read_text()
    assert "| asked | 0, random | 58.5% → 92.0% ± 25.4% (96.8%) | 28.8% → 28.8% ± 0.0% (0.0%) |" in text
    assert (
        "At temperature 0, the most that a seed loses in a role, to random / perfect play: asked 10.0% / 10.0%." in text
    )
    assert "| asked | 0, perfect | 0.0% | 77.7% → 77.7% ± 0.0% (0.0%) | 0.0% |" in text
    assert "after 38,400 games (at rest)" in text
    assert "against its past, and against the best of it: asked 0.320 ± 0.254, -0.200 ± 0.000." in text
    assert "| 0.900, 0.940 reached |" in text


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_can_be_planned(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recipe.spiral.lab.models.tiny.ensure", made_model)
    with initialize_config_dir(str(CONFIGS), version_base=None):
        settings: Any = OmegaConf.to_container(compose(name), resolve=True, throw_on_missing=False)
    assert plan(settings) and settings["name"] == name


def test_the_page_shows_a_reference_that_moves_and_the_table_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recipe.spiral.lab.models.tiny.ensure", made_model)
    arms = {"mean": [], "start": ["ref_update_freq=100"]}
    overrides = ["--config-dir", "config", "+experiment=kuhn", "ref_update_freq=1"]
    settings = config(tmp_path, arms=arms, overrides=overrides, warm_starts=[0, 1], targets=[], name="moving_reference")

    def curve(run: Run) -> Curve:
        mean = 0.9 if run.arm == "start" else 0.05 + 0.01 * run.seed + 0.02 * (run.start or 0)
        shown = {"NashConv": 0.2, "NashConv of the reference": mean, "NashConv as judged": 0.2, "illegal": 0.0}
        points = [Point(step, step * 128, {**shown, "illegal, worst": 0.0}) for step in (0, 10, 20)]
        return Curve(points, {OWN_PAST: 0.0, WORST_PAST: 0.0}, {"KuhnPoker": 0.1}, 60.0)

    runs = plan(settings)
    result = gather(runs, list(map(curve, runs)), settings, "python -m it", ["0123"])
    (header, _, mean, start, *_) = [line for line in pages.page(result).splitlines() if line.startswith("|")]
    cells = [dict(zip(header.split("|"), line.split("|"), strict=True)) for line in (mean, start)]
    assert cells[0][" mean of the reference "] == " 0.065 ± 0.127 ", "the means 0.055 and 0.075 of two warm starts"
    assert cells[1][" better mean, difference (p) "].startswith(" 0.135 ± 0.127 ")
    assert float(cells[1][" in a table: reference "]) == pytest.approx(11 / 12, abs=1e-3), "it has not moved"
    assert float(cells[0][" in a table "]) < 0.9
