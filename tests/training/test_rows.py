"""No game is trained in part: every learner's turn has its row, or the run ends."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.players.records import GameRecord
from recipe.spiral.serving import channel as game_channel
from recipe.spiral.trainer import NO_ROWS
from recipe.spiral.training import rows
from recipe.spiral.training.launched import Launch
from recipe.spiral.training.rows import RowsLost
from tests.fake_queue import FakeQueue
from tests.fake_verl import Verl, trainer
from tests.made import record, turn
from tests.training.test_filters import batch_of


def games(trainable: tuple[int, ...] = (0, 1)) -> list[GameRecord]:
    turns = [[turn(0, 0), turn(1, 0), turn(0, 1)], [turn(0, 0), turn(1, 0), turn(0, 1)], [turn(0, 0)]]
    return [record(index, rewards=(1.0, -1.0), turns=played, trainable=trainable) for index, played in enumerate(turns)]


def balance(
    monkeypatch: pytest.MonkeyPatch, run_dir: Path, played: list[GameRecord], lost: list[str], *overrides: str
) -> Any:
    """A sampled batch of these games, without the lost rows, through the trainer; returns what is trained."""
    made = trainer(monkeypatch, run_dir, *overrides)
    queue = FakeQueue.install(monkeypatch)
    for game in played:
        asyncio.run(game_channel.put(game.key, game_channel.Report(game)))
    batch, _ = batch_of(queue, played)
    for game in played:
        made.launched.add(str(game.key), Launch(game.key))
    return made._balance_batch(rows.drop(batch, lost), {})


def test_a_whole_batch_passes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert len(balance(monkeypatch, tmp_path, games(), [])) == 7


@pytest.mark.parametrize(
    ("lost", "what"),
    [
        (["u1_1_0"], r"1 of its 3 turns .* the first: turn 0 of player 1"),
        (["u1_0_0", "u1_0_1"], r"2 of its 3 turns .* the first: turn 0 of player 0"),
        (["u1_0_0", "u1_1_0", "u1_0_1"], r"3 of its 3 turns"),
        (["u1_0_1"], r"1 of its 3 turns .* the first: turn 1 of player 0"),
    ],
)
def test_a_game_whose_rows_are_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lost: list[str], what: str
) -> None:
    with pytest.raises(RowsLost, match=rf"^game train-7-1-1-0 of TicTacToe: {what}"):
        balance(monkeypatch, tmp_path, games(), lost)


def test_a_batch_without_any_row_names_a_game(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class NoRows(Verl):
        def _step_once(self, *args: Any) -> None:
            raise RuntimeError(f"Sync replay buffer selected terminal groups with {NO_ROWS}.")

    made = trainer(monkeypatch, tmp_path, verl=NoRows)
    FakeQueue.install(monkeypatch)
    for game in games():
        asyncio.run(game_channel.put(game.key, game_channel.Report(game)))
    for game in games():
        made.launched.add(str(game.key), Launch(game.key))
    with pytest.raises(RowsLost, match=r"^game train-7-1-0-0 of TicTacToe: 3 of its 3 turns"):
        made._step_once({}, {}, 4)


def test_surplus_games_may_lack_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    turns = ["batch_unit=turns", "data.train_batch_size=6"]
    assert len(balance(monkeypatch, tmp_path, games(), [], *turns)) == 6
    played = [*games(), record(3, turns=[turn(0, 0), turn(1, 0)])]
    assert len(balance(monkeypatch, tmp_path, played, ["u3_1_0"], *turns)) == 6
    with pytest.raises(RowsLost, match="game train-7-1-0-0"):
        balance(monkeypatch, tmp_path, played, ["u0_1_0"], *turns)


def test_an_opponents_turns_have_no_rows() -> None:
    (game, *_) = games(trainable=(0,))
    own = [rows.Row(game, turn) for turn in game.turns_of(0)]
    rows.check_complete(own, [game])
    with pytest.raises(RowsLost, match="1 of its 2 turns"):
        rows.check_complete(own[1:], [game])
