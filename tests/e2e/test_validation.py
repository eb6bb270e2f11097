"""Validation in a real run: two opponents, and a game that is not trained on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder

from .conftest import Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def test_two_opponents_and_a_game_that_is_not_trained_on(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    overrides = small(
        model,
        "games=[TicTacToe]",
        "validation.games=[TicTacToe,Nim]",
        "validation.opponents=[perfect,random]",
        "trainer.total_training_steps=1",
        "trainer.test_freq=1",
        "trainer.save_freq=-1",
    )
    run = Run(tmp_path / "run", *overrides)
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]

    files = sorted((tmp_path / "run").glob("metrics-*.jsonl"))
    logged = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    before, after = (entry["data"] for entry in logged if "val-core/TicTacToe/p0/win" in entry["data"])
    for metrics in (before, after):
        for opponent in ("perfect", "random"):
            for game in ("TicTacToe", "Nim"):
                assert [metrics[f"val-core/{opponent}/{game}/p{role}/games"] for role in (0, 1)] == [4.0, 4.0]
        assert metrics["val-core/TicTacToe/p0/win"] == metrics["val-core/perfect/TicTacToe/p0/win"]
    for step in (0, 1):
        games = list(RecordFolder(tmp_path / "run/games").read_step("val", step))
        assert len(games) == 2 * 2 * 2 * 4
        assert {record.opponent for record in games} == {"perfect", "random"}
