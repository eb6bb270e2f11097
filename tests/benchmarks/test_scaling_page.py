"""Costs fitted to a run's files, and docs/scaling.md: made from results that the simulation still gives."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from omegaconf import OmegaConf

from benchmarks.scaling import __main__ as command
from benchmarks.scaling import games, predict, runs
from benchmarks.scaling.figures import PARTS, Costs, EngineCosts, LearnerCosts
from benchmarks.scaling.fit import compare, driver, fit, setup_of, steps_of
from benchmarks.scaling.page import page
from benchmarks.scaling.run import SEPARATE, SYNC, Setup
from recipe.spiral.players.records import GameRecord, Tokens, Turn
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.metrics_file import MetricsFile
from recipe.spiral.storage.record_folder import RecordFolder

RESULTS = json.loads(command.RESULTS.read_text(encoding="utf-8"))
#: Of a made run: 20 ms an iteration, 2 ms a turn of 40 tokens.
COSTS = Costs(
    engine=EngineCosts(iteration=0.02, sequence=0.0, prompt_token=0.002 / 40),
    learner=LearnerCosts(fixed=0.3, token=1e-4),
    update=0.05,
    driver_step=0.1,
    driver_row=1e-3,
    poll=0.01,
)


def game(index: int) -> games.Game:
    return ((40, 4),) * (2 + index * 7 % 8)


def made_run(run_dir: Path, batch: int, steps: int = 12) -> Path:
    """A run's records and metrics, whose seconds follow from ``COSTS``; one step validates, which takes long."""
    now = 1000.0
    metrics = MetricsFile(run_dir, clock=lambda: now)
    for step in range(1, steps + 1):
        records, played = [], [game(step * batch + index) for index in range(batch)]
        for index, turns in enumerate(played):
            made = [
                Turn(
                    i % 2,
                    i // 2,
                    "",
                    "",
                    "legal",
                    tokens=Tokens([1] * prompt, [1] * response, [0.0] * response, (0, 0)),
                )
                for i, (prompt, response) in enumerate(turns)
            ]
            key = GameKey("train", 0, step, index)
            records.append(GameRecord(key, "TicTacToe", ("policy", "policy"), (0, 1), made))
        RecordFolder(run_dir / "games").write("train", step, records)
        rows, size = sum(map(len, played)), sum(map(games.tokens, played))
        longest = max(sum(response for _, response in turns) for turns in played)
        seconds = {
            "gen": 0.02 * longest + 0.002 * rows + COSTS.poll / 2,
            "update_actor": COSTS.learner.seconds(size, 1),
            "update_weights": COSTS.update,
        }
        now += sum(seconds.values()) + COSTS.driver_step + COSTS.driver_row * rows
        if step == 5:
            seconds["testing"] = 100.0
            now += 100.0
        metrics.log({f"timing_s/{name}": value for name, value in seconds.items()}, step)
        noted = {"step": step, "cpu": {"trainer": 0.05 * step + 5e-4 * rows_so_far(step, batch)}}
        with (run_dir / runs.CPU).open("a") as lines:
            lines.write(json.dumps(noted) + "\n")
    return run_dir


def rows_so_far(step: int, batch: int) -> int:
    return sum(len(game(index)) for index in range(batch, (step + 1) * batch))


def test_costs_are_fitted_to_runs(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / str(batch), batch) for batch in (8, 64)]
    steps = [step for run in runs for step in steps_of(run)]
    assert len(steps) == 2 * (12 - 2 - 1), "the first two are left out, and the one that validates"
    found = fit(steps, COSTS.poll)
    assert found.engine.iteration == pytest.approx(0.02, rel=1e-3)
    assert found.engine.prompt_token == pytest.approx(COSTS.engine.prompt_token, rel=1e-3)
    assert (found.learner.fixed, found.learner.token) == pytest.approx((0.3, 1e-4), rel=1e-3)
    assert (found.driver_step, found.driver_row, found.update) == pytest.approx((0.1, 1e-3, 0.05), rel=1e-2)


def test_the_drivers_cost_is_its_cpu_time(tmp_path: Path) -> None:
    steps = [step for batch in (8, 64) for step in steps_of(made_run(tmp_path / str(batch), batch))]
    assert driver(steps) == pytest.approx({"driver_step": 0.05, "driver_row": 5e-4}, rel=1e-3)
    for step in steps:
        step.cpu.clear()
    with pytest.raises(ValueError, match="0 steps have the driver's CPU time; make runs with the part `run`"):
        driver(steps)


def test_cpu_time_is_counted_by_process() -> None:
    """Of processes that are called as Ray calls its actors."""
    script = "while __import__('time').process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    with subprocess.Popen(
        ["ray::Actor.run", "-c", script],
        executable=sys.executable,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "done\n"
        used = runs.cpu_seconds(psutil.Process())
        child.communicate("\n")
    assert used["Actor"] == pytest.approx(0.3, abs=0.1)


def test_a_run_is_made_in_a_new_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is there already; remove it, or name another folder"):
        runs.make(tmp_path, games=8, steps=2, seconds=1.0)


def test_a_disturbed_step_does_not_change_the_costs(tmp_path: Path) -> None:
    steps = [step for batch in (8, 64) for step in steps_of(made_run(tmp_path / str(batch), batch))]
    slow = steps[0].__class__(**{**vars(steps[0]), "whole": 99.0, "play": 50.0, "learn": 40.0})
    assert fit([slow, *steps[1:]], COSTS.poll).learner.token == pytest.approx(1e-4, rel=1e-3)


def test_another_run_is_predicted(tmp_path: Path) -> None:
    steps = [step for batch in (8, 64) for step in steps_of(made_run(tmp_path / str(batch), batch))]
    run, drawn = made_run(tmp_path / "other", 32), [one for step in steps for one in step.games]
    one = compare(run, Setup(SYNC, 1, 1, batch=32, steps=30), fit(steps, COSTS.poll), drawn)
    for name in ("seconds", "play", "learn", "update", "rest", "games", "turns", "engine_idle", "learner_idle"):
        assert one["predicted"][name] == pytest.approx(one["measured"][name], rel=0.1), name
    assert one["steps"] == 9 and one["slowest"] < 10


def test_a_run_that_cannot_be_fitted_says_why(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no records of trained games"):
        steps_of(tmp_path)
    with pytest.raises(ValueError, match="has 2 steps to measure, after the first 2; 3 are needed"):
        steps_of(made_run(tmp_path, 8, steps=4))


def test_settings_are_read_from_a_runs_config() -> None:
    rollout = {"agent": {"num_workers": 1}, "nnodes": 1, "n_gpus_per_node": 2}
    v1 = {"trainer_mode": SEPARATE, SEPARATE: {"num_warmup_batches": 2}}
    config = OmegaConf.create(
        {
            "data": {"train_batch_size": 16},
            "trainer": {"n_gpus_per_node": 1, "v1": v1},
            "actor_rollout_ref": {"rollout": rollout},
            "asynchronous": {"max_staleness": 3, "on_stale": "drop"},
        }
    )
    found = setup_of(config)
    assert (found.mode, found.engines, found.learner, found.batch, found.ahead) == (SEPARATE, 2, 1, 16, 2.0)
    assert (found.max_staleness, found.on_stale, found.workers) == (3, "drop", 1)
    v1["trainer_mode"] = "sync"
    config.trainer.v1 = v1
    assert (setup_of(config).mode, setup_of(config).engines, setup_of(config).ahead) == ("sync", 1, 0.0)


def test_the_page_is_made_from_the_results() -> None:
    assert command.main(["page", "--check"]) == 0, "run python -m benchmarks.scaling page"
    assert command.PAGE.read_text(encoding="utf-8") == page(RESULTS)


def test_the_simulation_still_gives_the_results() -> None:
    """On eight devices, which takes seconds; the others come from the same program."""
    machine = predict.Machine.of(command.host_of(RESULTS))
    found = [row for row in RESULTS["predicted"]["scaled"] if row["devices"] == 8]
    assert len(found) == 3
    for row in found:
        one = predict.setup(row["mode"], 8, row["batch"], RESULTS["predicted"]["engine_share"])
        again = machine.run(one).to_dict()
        for name, value in row["result"].items():
            if not isinstance(value, dict):
                assert again[name] == pytest.approx(value, rel=1e-6), (
                    f"{name}: run python -m benchmarks.scaling predict"
                )


def test_predictions_want_measurements_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "scaling.json"
    assert command.main(["--json", str(file), "predict"]) == 2
    assert "has no host and no fit: run that part first" in capsys.readouterr().err
    assert not file.exists()


def test_predictions_go_on_where_they_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predict, "SIZES", (8,))
    monkeypatch.setattr(predict, "STEPS", {8: 4})
    monkeypatch.setattr(predict, "GAMES_A_DEVICE", 1)
    monkeypatch.setattr(predict, "LONG_STEPS", 4)
    host = command.host_of(RESULTS)
    written = [json.dumps(results) for results in predict.predict(host)]
    assert len(written) == 3 * (1 + len(PARTS) + 1)
    found = json.loads(written[-1])
    for row in found["scaled"]:
        assert set(row["gains"]) == {*PARTS, predict.ALIKE} and max(row["gains"].values()) == row["gains"]["engine"]
        assert row["gains"]["rollout workers"] == pytest.approx(0.0, abs=0.02)
    *_, again = predict.predict(host, json.loads(written[12]))
    assert json.loads(json.dumps(again)) == found
    assert list(predict.predict(host, found)) == []
    other = replace(host, driver_row=1.0)
    assert len(list(predict.predict(other, found))) == len(written), "another host's results are of no use"
