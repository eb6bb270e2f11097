"""Proxies of verl's objects, handed to verl in their place: they pass everything on, and change one call each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from verl.utils.tensordict_utils import assign_non_tensor_stack

from ..opponents.league import League
from ..players.seats import Seat
from ..players.seeds import GameKey
from .launched import Launch, Launched

#: The agent loop of questions to train on.
ANSWERS = "spiral_answer"


class Launches:
    """The agent-loop manager; notes the games that are launched through it.

    A game whose step was not known gets its key here, the step's next. Training games get their seats here, and
    validation games their quotas. A question to train on is launched with the keys of all its responses.

    Args:
        manager: verl's.
        launched: where launched games are noted.
        league: the opponents; None: all training games are self-play.
        seated: whether training games have their seats before they come here.
    """

    def __init__(self, manager: Any, launched: Launched, league: League | None = None, seated: bool = False) -> None:
        self._manager = manager
        self._launched = launched
        self._league = league
        self._seated = seated

    def __getattr__(self, name: str) -> Any:
        return getattr(self._manager, name)

    def generate_sequences(self, batch: Any) -> Any:
        keys = [GameKey(**key) for key in list(batch["key"])]
        if keys[0].split == "train" and keys[0].step == 0:
            step, before = int(batch["global_steps"]), len(self._launched.of("train"))
            keys = [dataclasses.replace(key, step=step, index=before + i) for i, key in enumerate(keys)]
            assign_non_tensor_stack(batch, "key", [key.to_dict() for key in keys])
        if self._league is not None and keys[0].split == "train":
            if not self._seated and next(iter(batch["agent_name"])) != ANSWERS:
                give_seats(batch, self._league)
        elif self._league is not None:
            quotas = self._league.budgets.quotas()
            assign_non_tensor_stack(batch, "quota", [quotas.get(str(name), "") for name in list(batch["opponent"])])
        for launch in launches(batch):  # a validation set may hold questions beside its games
            self._launched.add(*launch)
        return self._manager.generate_sequences(batch)


def give_seats(batch: Any, league: League) -> None:
    """Seat training games: write into the batch who plays each of them."""
    keys = [GameKey(**key) for key in list(batch["key"])]
    games = [str(game) for game in list(batch["game"])]
    seated = league.seat(list(zip(keys, games, strict=True)))
    if set(seated) == {Seat()}:  # as the dataset has it
        return
    seats = [seat.columns() for seat in seated]
    for column in seats[0]:
        assign_non_tensor_stack(batch, column, [seat[column] for seat in seats])


def launches(batch: Any) -> Iterator[tuple[str, Launch]]:
    """The uid of each row of a batch, and what is launched by it; of a question, each response by itself."""
    names = ("uid", "key", "agent_name", *Seat().columns())
    columns = {name: list(batch[name]) for name in names if name in batch.keys()}  # noqa: SIM118
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        key = GameKey(**row["key"])
        if row.get("agent_name") == ANSWERS:
            for number in range(int(row["__rollout_n__"])):
                yield f"{row['uid']}_{number}", Launch(dataclasses.replace(key, index=key.index + number))
        else:
            yield str(row["uid"]), Launch(key, Seat.from_row(row) if key.split == "train" else Seat())


class FixedMiniBatches:
    """The policy's or the critic's workers, which cut a batch into M mini-batches, however many rows it has.

    verl would send a fixed number of rows a step, and so take more steps the longer the games. How many turns each
    mini-batch has, by which its loss is divided, the workers count (``workers.mini_batches``).

    Args:
        workers: verl's.
        num_mini_batches: M.
        settings: of the loss, which go to the workers beside the rows.
    """

    def __init__(self, workers: Any, num_mini_batches: int, settings: Mapping[str, Any] | None = None) -> None:
        self._workers = workers
        self._num_mini_batches = num_mini_batches
        self._settings = settings or {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._workers, name)

    def update_actor(self, batch: Any) -> Any:
        return self._workers.update_actor(self._divided(batch))

    def train_mini_batch(self, batch: Any) -> Any:
        return self._workers.train_mini_batch(self._divided(batch))

    def _divided(self, batch: Any) -> Any:
        batch.extra_info["mini_batch_size"] = len(batch) // self._num_mini_batches
        batch.extra_info.update(self._settings)
        return batch
