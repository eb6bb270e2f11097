"""What a watcher counts of games, says of them and remembers, and the sample games that Weights & Biases gets."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.watching.game_metrics import staleness, staleness_metrics
from recipe.spiral.lab.watching.shown import COLUMNS, MOST_CHARACTERS, log_games, text
from recipe.spiral.lab.watching.watcher import VoidGames, Watcher
from recipe.spiral.players.records import GameRecord, Turn
from recipe.spiral.players.seeds import GameKey
from tests.made import record, tokens, turn
from tests.made_configs import config

# -- staleness ---------------------------------------------------------------------------------------------------------


def game(index: int, *versions: tuple[int, int], trainable: tuple[int, ...] = (0, 1), **more: object) -> GameRecord:
    """A game whose turns were written by these versions, in turn by player 0 and 1."""
    turns = [
        turn(place % 2, place // 2, tokens=replace(tokens(), weight_versions=version))
        for place, version in enumerate(versions)
    ]
    return record(index, turns=turns, trainable=trainable, **more)  # type: ignore[arg-type]


def test_the_oldest_part_of_one_of_the_learners_turns_counts() -> None:
    assert staleness(game(0, (4, 4), (4, 4)), step=5) == 0
    assert staleness(game(0, (4, 4), (2, 3)), step=5) == 2
    assert staleness(game(0, (1, 1), (3, 3), trainable=(1,)), step=5) == 1, "player 0 is no learner"
    assert staleness(game(0, (1, 1), trainable=(1,)), step=5) == 0


def test_metrics_of_a_step() -> None:
    trained = [game(0, (4, 4)), game(1, (4, 4), (3, 4)), game(2, (2, 2))]
    dropped = [game(3, (0, 4), opponent="random", rewards=(1.0, -1.0))]
    metrics = staleness_metrics(trained, dropped, step=5)
    assert metrics["async/staleness/mean"] == 1 and metrics["async/staleness/max"] == 2
    assert [metrics[f"async/staleness/{age}"] for age in range(4)] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0])
    assert metrics["async/versions_in_a_game"] == pytest.approx(4 / 3)
    assert metrics["async/dropped/random"] == 1
    assert metrics["async/dropped/TicTacToe/p0/win"] == 1
    assert staleness_metrics([], [], step=1)["async/staleness/mean"] == 0


# -- void games --------------------------------------------------------------------------------------------------------


def against(step: int, index: int, reason: str | None = None, answers: bool = False, retry: int = 0) -> GameRecord:
    """A game of the policy's against gpt: void for a reason, or lost before, or after, gpt has answered."""
    turns = [Turn(player, 0, "", "", "legal") for player in range(1 + answers)] if reason is None else []
    void = {"discarded": "void", "reason": reason} if reason is not None else {}
    key = GameKey("train", 3, step, index, retry)
    return GameRecord(key, "TicTacToe", ("policy", "gpt"), (0,), turns, opponent="gpt", **void)


def test_void_games_are_said_and_an_opponent_that_stays_silent_stops_the_run() -> None:
    voids = VoidGames(2)
    assert voids.count([against(1, 0, "no money"), against(1, 1, "left alone"), against(1, 2)]) == [
        "gpt: 2 of its 3 games were void, the first: no money"
    ]
    assert voids.count([against(2, 0, "busy"), against(2, 0, answers=True, retry=1)]) == [
        "gpt: 1 of its 1 games were void, the first: busy"
    ]
    voids.count([against(3, 0, "no money")])
    voids.count([])
    voids.count([against(5, 0)])
    assert not voids.silent, "it was not asked"
    voids.count([against(6, 0, "still no money"), against(6, 1)])
    assert voids.silent == "max_void_steps=2: gpt: 1 of its 2 games were void, the first: still no money"


def test_a_watcher_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """With the steps of before in its counts of steps in a row."""
    made = config(tmp_path, "max_void_steps=2")
    void = [record(2, opponent="gpt", trainable=(0,), turns=[], discarded="void", reason="no money")]

    def shown(watcher: Watcher, number: int) -> dict[str, float]:
        metrics: dict[str, float] = {}
        watcher.games({}, "train", number, [game(0, (0, 0))], void, "file")
        watcher.step(metrics)
        return metrics

    whole, resumed = Watcher(made), Watcher(made)
    shown(whole, 1)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    expected = shown(whole, 2)
    assert shown(resumed, 2) == expected
    assert resumed.stop == whole.stop and "no money" in resumed.stop
    again = Watcher(made)
    again.load_state_dict(whole.state_dict())
    shown(again, 3)
    assert not again.stop, "after a stop it has max_void_steps again"


# -- the table of games ------------------------------------------------------------------------------------------------


def games() -> list[GameRecord]:
    """Validation games: two opponents, both roles, three of each, and one that does not count."""
    made = []
    for opponent in ("random", "perfect"):
        for role in (0, 1):
            for _ in range(3):
                turns = [turn(0, 0), turn(1, 0, "illegal")]
                made.append(record(len(made), turns=turns, trainable=(role,), opponent=opponent))
    return [*made, record(99, trainable=(0,), opponent="random", discarded="void")]


class Wandb(ModuleType):
    """Weights & Biases: keeps what is logged."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.logged: list[tuple[int, dict[str, Any]]] = []

    def log(self, data: dict[str, Any], step: int) -> None:
        self.logged.append((step, data))

    def Table(self, columns: list[str], data: list[Any]) -> Any:
        assert all(len(row) == len(columns) for row in data)
        return SimpleNamespace(columns=columns, data=data)


def test_a_table_has_games_of_every_opponent_and_role(tmp_path: Path) -> None:
    wandb, played = Wandb(), games()
    log_games({"wandb": wandb}, 40, played, 5, "games/val_step_000040.jsonl")
    ((step, logged),) = wandb.logged
    table = logged["val/games"]
    assert step == 40 and table.columns == list(COLUMNS) and len(table.data) == 5
    rows = [dict(zip(COLUMNS, row, strict=True)) for row in table.data]
    assert {(row["opponent"], row["role"]) for row in rows} == {(o, r) for o in ("random", "perfect") for r in (0, 1)}
    folder = RecordFolder(tmp_path)
    lines = gzip.decompress(folder.write("val", 40, played).read_bytes()).decode().splitlines()
    for row in rows:
        found = msgspec.json.decode(lines[int(row["record"].rpartition(":")[2]) - 1], type=GameRecord)
        assert (found.opponent, found.trainable, text(found)) == (row["opponent"], (row["role"],), row["text"])


def test_a_long_answer_is_cut_in_the_table_and_a_hostile_one_is_written_out() -> None:
    long = record(0, turns=[turn(0, 0)])
    long.turns[0].response = "\x1b[2J\u202e" + "x" * 1_000_000
    shown = text(long)
    assert len(shown) < MOST_CHARACTERS + 1000 and f"({1_000_005 - MOST_CHARACTERS} more characters)" in shown
    assert "\n\\x1b[2J\\u202exxx" in shown and "\x1b" not in shown
