"""Each row is joined with the turn that it is, and no game is trained in part."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tensordict import TensorDict
from verl.utils.tensordict_utils import assign_non_tensor_stack

from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seats import Opponent, Seat
from recipe.spiral.rae import Baselines
from recipe.spiral.rollout import GameAgentLoop
from recipe.spiral.rollouts import channel as game_channel
from recipe.spiral.rollouts.worker import RolloutWorker
from recipe.spiral.training.credit import Filters
from recipe.spiral.training.launched import launches
from recipe.spiral.training.rows import PADDING, Rows, keep
from recipe.spiral.training.step import Step, account
from tests.fake_queue import FakeQueue, batch_of, launches_of
from tests.fake_verl import trainer
from tests.made import record, turn
from tests.rollouts.test_worker import VERLS, play
from tests.test_rollout import Engine, self_play


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
        asyncio.run(game_channel.put(game.key, game_channel.Report([game])))
    batch, _ = batch_of(queue, played)
    for launch in launches_of(played):
        made.launched[str(launch.key)] = [launch]
    return made._balance_batch(keep(batch, [key for key in batch.keys if key not in lost]), {})


def accounted(played: list[GameRecord], keys: list[str], turns: int | None = None) -> Step:
    return account(1, game_channel.Played(played, []), launches_of(played), keys, Baselines(), Filters(), turns)


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
    with pytest.raises(RuntimeError, match=rf"^game train-7-1-1-0 of TicTacToe: {what}"):
        balance(monkeypatch, tmp_path, games(), lost)


def test_rows_are_in_the_order_of_their_games_whatever_came_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding, which verl adds later, is no turn."""
    second, first = record(2, turns=[turn(0, 0), turn(1, 0)]), record(1, turns=[turn(0, 0), turn(1, 0), turn(0, 1)])
    batch, rows = batch_of(FakeQueue.install(monkeypatch), [second, first])
    assert batch.keys == ["u2_0_0", "u2_1_0", "u1_0_0", "u1_0_1", "u1_1_0"]
    batch = keep(batch, accounted([second, first], batch.keys).keys)
    assert batch.keys == rows.keys == ["u1_0_0", "u1_0_1", "u1_1_0", "u2_0_0", "u2_1_0"]
    assert rows.turns == [*first.turns_of(0), *first.turns_of(1), *second.turns]
    assert rows.places(["pad0_0_0", *batch.keys]).tolist() == [PADDING, 0, 1, 2, 3, 4]
    assert rows.remaining.tolist() == [1, 0, 0, 0, 0] and rows.players.tolist() == [0, 0, 1, 0, 1]


# -- through the rollout worker ---------------------------------------------------------------------------------------


def seated(index: int, seat: Seat) -> dict[str, Any]:
    return {**self_play(index), **seat.columns(), "__rollout_n__": len(seat.trainable)}


@pytest.mark.parametrize("worker", [RolloutWorker, VERLS], ids=["ours", "verl's"])
def test_each_row_of_a_played_game_is_its_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, worker: Any) -> None:
    """Of self-play, of games against an opponent in both roles, of draws that are played again with the players changed
    over, and of branches: what is in the queue under a row's name is that turn's, of the game's record."""
    monkeypatch.setattr(
        GameAgentLoop, "_draw_retry", SimpleNamespace(enabled=True, max_retries=3, swap=True, temperature=None)
    )
    # every other game is a draw at first
    monkeypatch.setattr(GameRecord, "result", lambda game, _: "draw" if game.key.retry < game.key.index % 2 else "loss")
    opponents = [Seat(Opponent("random", "random"), (player,)) for player in (0, 1)]
    given = [seated(index, seat) for index, seat in enumerate([Seat()] * 8 + opponents * 4 + opponents[::-1] * 4)]
    queue = FakeQueue.install(monkeypatch)
    play(worker, given, Engine(), str(tmp_path), queue=queue, branching=(2, 2))

    batch = TensorDict({}, batch_size=len(given))
    for column in ("uid", "key", "agent_name", *Seat().columns()):
        assign_non_tensor_stack(batch, column, [row[column] for row in given])
    noted = [launch for _, games in launches(batch) for launch in games]
    games = game_channel.take(launch.key for launch in noted)
    keys = [key for key in queue.partitions["train"] if "_" in key]
    rows = Rows(games.records, noted)
    rows.check_complete(keys)
    assert {record.trainable for record in games.records} == {(0, 1), (0,), (1,)}
    assert {record.key.retry for record in games.records} >= {0, 1, 2}, "drawn or not, with branches or not"
    for place, key in enumerate(rows.keys):
        fields, turn, record = queue.partitions["train"][key][0], rows.turns[place], rows.records[rows.games[place]]
        assert turn in record.turns_of(rows.players[place]) and turn.tokens is not None
        assert fields["prompts"].tolist() == turn.tokens.prompt_ids, key
        assert fields["responses"].tolist() == turn.tokens.response_ids, key
        if worker is RolloutWorker:  # verl's gives all rows of a session the last one's reward, also of branches
            assert float(fields["rm_scores"].sum()) == record.rewards[turn.player]
