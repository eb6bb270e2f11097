"""The games and questions that were launched and are still to be accounted for.

In sync mode a step accounts for all games that were launched for it. In the asynchronous modes it accounts for those
that were sampled or dropped; all others stay in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from verl.utils.tensordict_utils import assign_non_tensor_stack

from ..opponents.league import League
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
    """What was launched and is not accounted for, by split and verl's uid."""

    def __init__(self) -> None:
        self._launches: dict[str, dict[str, Launch]] = {}
        #: Of the training games: the uids that are to be accounted for now; None: all of them.
        self._sampled: list[str] | None = None

    def add(self, uid: str, launch: Launch) -> None:
        """Note one; one that is launched again is there once."""
        self._launches.setdefault(launch.key.split, {})[uid] = launch

    def of(self, *splits: str) -> list[GameKey]:
        """Those of some splits, in the order in which they were launched."""
        return [launch.key for split in splits for launch in self._launches.get(split, {}).values()]

    def take(self, split: str) -> list[Launch]:
        """Those of a split, to account for them now: of training games the sampled ones, where games are sampled."""
        if split != TRAIN or self._sampled is None:
            return [*self._launches.pop(split, {}).values()]
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
        return [train.pop(uid) for uid in uids]

    def key(self, uid: str) -> GameKey:
        return self._launches[TRAIN][uid].key

    def seat(self, uid: str) -> Seat:
        return self._launches[TRAIN][uid].seat

    def opponents(self) -> set[str]:
        """The models that the run serves itself and that games are played against that were not sampled."""
        train, over = self._launches.get(TRAIN, {}), {*(self._sampled or ())}
        return {launch.seat.opponent.name for uid, launch in train.items() if launch.seat.model and uid not in over}


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
    """Seat training games: write into the batch who plays each of them."""
    keys = [GameKey(**key) for key in list(batch["key"])]
    games = [str(game) for game in list(batch["data_source"])]
    seated = league.seat(list(zip(keys, games, strict=True)))
    if set(seated) == {Seat()}:  # as the dataset has it
        return
    seats = [seat.columns() for seat in seated]
    for column in seats[0]:
        assign_non_tensor_stack(batch, column, [seat[column] for seat in seats])


def launches(batch: Any) -> Iterator[tuple[str, Launch]]:
    """The uid of each row of a batch, and what is launched by it: games, one after the other, with a session for each
    trainable player."""
    names = ("uid", "key", *Seat().columns())
    columns = {name: list(batch[name]) for name in names}
    for values in zip(*columns.values(), strict=True):
        row = dict(zip(columns, values, strict=True))
        key, uid = GameKey(**row["key"]), str(row["uid"])
        seat = Seat.from_row(row) if key.split == TRAIN else Seat()
        sessions, each = int(row["__rollout_n__"]), len(seat.trainable)
        for number, first in enumerate(range(0, max(sessions, each), each)):
            named = tuple(f"{uid}_{session}" for session in range(first, first + each))
            game = key if number == 0 else replace(key, index=key.index + number)
            yield (uid if sessions <= each else named[0]), Launch(game, seat, named)
