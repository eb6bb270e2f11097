"""Validation in which games do not count: what is said, and what is not made of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.trainer import SpiralTrainer
from recipe.spiral.training.launched import Launch
from tests.fake_verl import Verl, trainer

KEYS = [GameKey("val", 0, 0, index) for index in range(3)]
VALIDATE = SpiralTrainer._validate


class WithoutRows(Verl):
    """As verl where no game gave a row."""

    def _validate(self) -> dict[str, float]:
        raise ValueError("keys or partition were not found!")


def void(key: GameKey) -> GameRecord:
    return GameRecord(key, "TicTacToe", ("policy", "gpt"), (0,), discarded="void", opponent="gpt", reason="HTTP 500")


def test_a_validation_of_void_games_is_told_and_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(monkeypatch, tmp_path, verl=WithoutRows, global_steps=7)
    for key in KEYS:
        asyncio.run(game_channel.put(key, game_channel.Report([void(key)])))
    for key in KEYS:
        made.launched.add(str(key), [Launch(key)])
    assert VALIDATE(made)["val-aux/discarded/void"] == 3.0
    line = "validation at step 7: gpt: 3 of its 3 games were void, the first: HTTP 500\n"
    assert line in (tmp_path / "train.log").read_text()
    made.state.records.wait()
    kept = list(RecordFolder(tmp_path / "games").read_step("val", 7))
    assert {record.key.step for record in kept} == {7} and made.launched.of("val") == []
