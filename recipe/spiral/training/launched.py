"""The games and questions that were launched and are still to be accounted for.

In sync mode a step accounts for all games that were launched for it. In the asynchronous modes it accounts for those
that were sampled or dropped; all others stay in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from verl.utils.tensordict_utils import assign_non_tensor_stack

from ..opponents.league import League
from ..players.records import SELF_PLAY
from ..players.seats import Seat
from ..players.seeds import GameKey

TRAIN = "train"


@dataclass(frozen=True)
class Launch:
    """A game or a question under way.

    Attributes:
        key: its name.
        seat: who sits at the table.
        sessions: verl's names of its sessions, which are those of the trainable players, in their order.
    """

    key: GameKey
    seat: Seat = field(default_factory=Seat)
    sessions: tuple[str, ...] = ()


class Launched:
    """What was launched and is not accounted for, by split and verl's uid: the games from one start."""

    def __init__(self) -> None:
        self._launches: dict[str, dict[str, Sequence[Launch]]] = {}
        #: Of the training games: the uids that are to be accounted for now; None: all of them.
        self._sampled: list[str] | None = None

    def add(self, uid: str, launches: Sequence[Launch]) -> None:
        """Note those of a uid; one that is launched again is there once."""
        self._launches.setdefault(launches[0].key.split, {})[uid] = launches

    def of(self, *splits: str) -> list[GameKey]:
        """The keys of some splits, in the order in which they were launched."""
        together = (games for split in splits for games in self._launches.get(split, {}).values())
        return [launch.key for games in together for launch in games]

    def take(self, split: str) -> list[Launch]:
        """Those of a split, to account for them now: of training games the sampled ones, where games are sampled."""
        if split != TRAIN or self._sampled is None:
            return [*chain.from_iterable(self._launches.pop(split, {}).values())]
        sampled, self._sampled = self._sampled, []
        return self.take_these(sampled)

    def take_keys(self, split: str) -> list[GameKey]:
        """The keys of those of a split, to account for them now."""
        return [launch.key for launch in self.take(split)]

    # -- training games in the asynchronous modes ----------------------------------------------------------------------

    def sample(self, uids: Iterable[str]) -> None:
        """These are to be accounted for by the next ``take``; the others stay in flight."""
        self._sampled = [*(self._sampled or []), *uids]

    def take_these(self, uids: Iterable[str]) -> list[Launch]:
        """These, to account for them now."""
        train = self._launches[TRAIN]
        return [launch for uid in uids for launch in train.pop(uid)]

    def keys(self, uid: str) -> list[GameKey]:
        return [launch.key for launch in self._launches[TRAIN][uid]]

    def key(self, uid: str) -> GameKey:
        """Of the first game from a start."""
        return self._launches[TRAIN][uid][0].key

    def seat(self, uid: str) -> Seat:
        return self._launches[TRAIN][uid][0].seat

    def opponents(self) -> set[str]:
        """The models that the run serves itself and that games are played against that were not sampled."""
        train, over = self._launches.get(TRAIN, {}), {*(self._sampled or ())}
        seats = [games[0].seat for uid, games in train.items() if uid not in over]
        return {seat.opponent.name for seat in seats if seat.model}


def launch(batch: Any, launched: Launched, league: League, seated: bool = False) -> None:
    """Note what a batch of rows launches, in the moment before it is played.

    A game whose step was not known gets its key here, the step's next. Training games get their seats here, unless they
    have them (``seated``).
    """
    keys = [GameKey(**key) for key in list(batch["key"])]
    if keys[0].split == TRAIN and keys[0].step == 0:
        step, before = int(batch["global_steps"]), len(launched.of(TRAIN))
        keys = [replace(key, step=step, index=before + i) for i, key in enumerate(keys)]
        assign_non_tensor_stack(batch, "key", [key.to_dict() for key in keys])
    if keys[0].split == TRAIN and not seated:
        give_seats(batch, league)
    for uid, noted in launches(batch):
        launched.add(uid, noted)


def give_seats(batch: Any, league: League) -> None:
    """Seat training games: write into the batch who plays those from each start. Questions have their seats."""
    rows = list(batch["seat"])
    if any(row["opponent"] != SELF_PLAY for row in rows):
        return
    keys = [GameKey(**key) for key in list(batch["key"])]
    games = [str(game) for game in list(batch["data_source"])]
    seated = [league.seat(key, game) for key, game in zip(keys, games, strict=True)]
    if set(seated) == {Seat()}:  # as the dataset has it
        return
    sessions = [
        int(number) // len(row["trainable"]) * len(seat.trainable)
        for number, row, seat in zip(list(batch["__rollout_n__"]), rows, seated, strict=True)
    ]
    assign_non_tensor_stack(batch, "seat", [seat.columns()["seat"] for seat in seated])
    assign_non_tensor_stack(batch, "__rollout_n__", sessions)


def launches(batch: Any) -> Iterator[tuple[str, list[Launch]]]:
    """The uid of each row of a batch, and the games that it launches: each has a session for each trainable player, and
    the row's key, counted on."""
    names = ("uid", "key", "seat", "__rollout_n__")
    columns = {name: list(batch[name]) for name in names if name in batch.keys()}  # noqa: SIM118
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        uid, key = str(row["uid"]), GameKey(**row["key"])
        if key.split != TRAIN:
            yield uid, [Launch(key)]
            continue
        seat = Seat.from_row(row)
        players = len(seat.trainable)
        sessions = [f"{uid}_{number}" for number in range(int(row["__rollout_n__"]))]
        of_games = [tuple(sessions[first : first + players]) for first in range(0, len(sessions), players)]
        yield uid, [Launch(replace(key, index=key.index + n), seat, names) for n, names in enumerate(of_games)]
