"""TransferQueue in this process: the functions that verl and the recipe call, over dictionaries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from recipe.spiral.players.records import GameRecord
from recipe.spiral.training.launched import Launch
from recipe.spiral.training.rows import Rows

#: Where the functions are looked up.
_USERS = (
    "recipe.spiral.training.rows.tq",
    "recipe.spiral.spin.pairs.tq",
    "recipe.spiral.rollouts.channel.tq",
    "verl.trainer.ppo.v1.trainer_base.tq",
    "verl.trainer.ppo.v1.replay_buffer.tq",
    "verl.trainer.ppo.v1.agent_loop_tq.tq",
    "verl.trainer.ppo.padding_utils.tq",
)


class FakeQueue:
    """partition -> key -> (fields, tag)."""

    def __init__(self) -> None:
        self.partitions: dict[str, dict[str, tuple[dict[str, Any], dict[str, Any]]]] = {}

    @classmethod
    def install(cls, monkeypatch: pytest.MonkeyPatch) -> FakeQueue:
        queue = cls()
        for user in _USERS:
            monkeypatch.setattr(user, queue)
        return queue

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        wanted = self.partitions if partition_id is None else {partition_id: self.partitions.get(partition_id, {})}
        return {name: {key: tag for key, (_, tag) in entries.items()} for name, entries in wanted.items() if entries}

    def kv_batch_get(self, keys: list[str], partition_id: str, select_fields: list[str] | None = None) -> TensorDict:
        if not keys:
            raise ValueError("keys or partition were not found!")
        rows = [self.partitions[partition_id][key][0] for key in keys]
        names = [name for name in rows[0] if select_fields is None or name in select_fields]
        return list_of_dict_to_tensordict([{name: row[name] for name in names} for row in rows])

    def kv_batch_put(
        self,
        keys: list[str],
        partition_id: str,
        fields: TensorDict | None = None,
        tags: list[dict[str, Any]] | None = None,
    ) -> KVBatchMeta:
        partition = self.partitions.setdefault(partition_id, {})
        for i, key in enumerate(keys):
            entry, tag = partition.setdefault(key, ({}, {}))
            tag.update(tags[i] if tags else {})
            entry.update({name: _item(fields[name], i) for name in dict(fields)} if fields is not None else {})
        return KVBatchMeta(keys=list(keys), tags=[partition[key][1] for key in keys], partition_id=partition_id)

    async def async_kv_put(self, key: str, partition_id: str, tag: dict[str, Any]) -> KVBatchMeta:
        return self.kv_batch_put([key], partition_id, tags=[tag])

    async def async_kv_batch_put(self, *args: Any, **kwargs: Any) -> KVBatchMeta:
        return self.kv_batch_put(*args, **kwargs)

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys:
            self.partitions[partition_id].pop(key)


def _item(column: Any, index: int) -> Any:
    return column.unbind()[index] if isinstance(column, torch.Tensor) else column[index]


# -- rows, under the names that verl gives them ------------------------------------------------------------------------


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
