"""What trackers get besides numbers: sample games for Weights & Biases."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.lab.watching.tracked_games import (
    COLUMNS,
    MOST_CHARACTERS,
    log_games,
    text,
)
from recipe.spiral.players.records import GameRecord
from tests.made import record, turn


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
        found = GameRecord.from_dict(json.loads(lines[int(row["record"].rpartition(":")[2]) - 1]))
        assert (found.opponent, found.trainable, text(found)) == (row["opponent"], (row["role"],), row["text"])


def test_a_long_answer_is_cut_in_the_table_and_a_hostile_one_is_written_out() -> None:
    long = record(0, turns=[turn(0, 0)])
    long.turns[0].response = "\x1b[2J\u202e" + "x" * 1_000_000
    shown = text(long)
    assert len(shown) < MOST_CHARACTERS + 1000 and f"({1_000_005 - MOST_CHARACTERS} more characters)" in shown
    assert "\n\\x1b[2J\\u202exxx" in shown and "\x1b" not in shown
