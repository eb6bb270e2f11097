"""Rows made for tests, under the names that verl gives them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from recipe.spiral.players.records import GameRecord
from recipe.spiral.training.launched import Launch
from recipe.spiral.training.rows import Rows
from tests.fake_queue import FakeQueue


def launches_of(games: Iterable[GameRecord]) -> list[Launch]:
    """How games were launched, with the uid ``u{index}``."""
    sessions = {game.key.first_try(): range(len(game.trainable)) for game in games}
    return [
        Launch(key, sessions=tuple(f"u{key.index}_{session}" for session in of_game))
        for key, of_game in sessions.items()
    ]


def rows_of(games: Iterable[GameRecord]) -> Rows:
    played = [*games]
    return Rows(played, launches_of(played))


def batch_of(queue: FakeQueue, games: Iterable[GameRecord]) -> tuple[Any, Rows]:
    """The rows of these games, in the order of the games, as a batch in the queue."""
    played = [*games]
    rows = rows_of(played)
    keys = [
        key
        for game in played
        for key, of_game in zip(rows.keys, rows.games, strict=True)
        if rows.records[of_game] is game
    ]
    fields = [{"num_turns": 1, "prompts": torch.tensor([1])} for _ in keys]
    tags: list[dict[str, Any]] = [{"seq_len": 8} for _ in keys]
    queue.kv_batch_put(keys=keys, partition_id="train", fields=list_of_dict_to_tensordict(fields), tags=tags)
    return KVBatchMeta(keys=keys, tags=tags, partition_id="train"), rows
