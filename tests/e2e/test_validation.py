"""Validation in real runs: two opponents and a game that is not trained on; and exact metrics, which are those that
``main_eval`` computes of the checkpoint of the same step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from tests.e2e.conftest import Runs, logged, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_two_opponents_and_a_game_that_is_not_trained_on(tmp_path: Path, model: Path, runs: Runs) -> None:
    overrides = small(
        model,
        "games=[TicTacToe]",
        "validation.games=[TicTacToe,Nim]",
        "validation.opponents=[perfect,random]",
        "trainer.total_training_steps=1",
        "trainer.test_freq=1",
        "trainer.save_freq=-1",
    )
    runs.train(tmp_path / "run", *overrides)

    validations = logged(tmp_path / "run", "val-core/TicTacToe/p0/win")
    assert [*validations] == [0, 1]
    for metrics in validations.values():
        for opponent in ("perfect", "random"):
            for game in ("TicTacToe", "Nim"):
                assert [metrics[f"val-core/{opponent}/{game}/p{role}/games"] for role in (0, 1)] == [4.0, 4.0]
        assert metrics["val-core/TicTacToe/p0/win"] == metrics["val-core/perfect/TicTacToe/p0/win"]
    for step in (0, 1):
        games = list(RecordFolder(tmp_path / "run/games").read_step("val", step))
        assert len(games) == 2 * 2 * 2 * 4
        assert {record.opponent for record in games} == {"perfect", "random"}


def test_live_metrics_are_those_of_the_checkpoint(tmp_path: Path, model: Path, runs: Runs) -> None:
    overrides = small(
        model,
        "games=[TicTacToe,KuhnPoker]",
        "validation.exploitability=[KuhnPoker]",
        "validation.optimality=[TicTacToe]",
        "trainer.total_training_steps=2",
        "trainer.test_freq=1",
        "trainer.save_freq=1",
        "actor_rollout_ref.actor.optim.lr=1e-3",
    )
    run = runs.train(tmp_path / "run", *overrides)
    live = logged(tmp_path / "run", "val-core/KuhnPoker/nash_conv")
    assert sorted(live) == [0, 1, 2]
    assert "validation at step 2: KuhnPoker " in run.output and "p0/lost to perfect" in run.output

    arguments = [
        f"policies=[{{name: run, path: '{tmp_path / 'run'}'}}]",
        "opponents=[]",
        "match_ups=[]",
        "exploitability.games=[KuhnPoker]",
        "optimality.games=[TicTacToe]",
    ]
    runs.train(tmp_path / "eval", *arguments, program="main_eval")
    results: dict[str, Any] = json.loads((tmp_path / "eval/results.json").read_text())
    nash_conv = {row["policy"]: row for row in results["exploitability"]}
    optimal = {row["policy"]: row for row in results["optimality"]}
    for step in (1, 2):
        metrics, name = live[step], f"run/step_{step:06d}"
        kuhn, tictactoe = nash_conv[name], optimal[name]
        for key in ("nash_conv", "value"):
            assert metrics[f"val-core/KuhnPoker/{key}"] == pytest.approx(kuhn[key], abs=1e-6)
        assert metrics["val-core/KuhnPoker/illegal"] == pytest.approx(kuhn["illegal"][0], abs=1e-6)
        assert metrics["val-core/TicTacToe/optimal"] == pytest.approx(tictactoe["optimal"]["share"], abs=1e-6)
        lost = [metrics[f"val-core/TicTacToe/p{role}/lost_to_perfect"] for role in (0, 1)]
        assert lost == pytest.approx(tictactoe["lost_to_perfect"], abs=1e-6)
    assert live[1]["val-core/KuhnPoker/nash_conv"] != live[2]["val-core/KuhnPoker/nash_conv"]
    print({step: data["val-aux/TicTacToe/exact_seconds"] for step, data in live.items()})
