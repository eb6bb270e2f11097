"""The training games and questions that were launched and are still to be accounted for.

In sync mode a step accounts for all games that were launched for it. In the asynchronous modes it accounts for those
that were sampled or dropped; all others stay in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from verl.utils.tensordict_utils import assign_non_tensor_stack

from ..opponents.league import League
from ..players.records import SELF_PLAY
from ..players.seats import Seat
from ..players.seeds import GameKey

#: TransferQueue's partition of training games.
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


class Launched(dict[str, list[Launch]]):
    """What was launched and is not accounted for, by verl's uid: the games from one start."""

    def games(self) -> list[GameKey]:
        """Their keys, in the order in which they were launched."""
        return [launch.key for launches in self.values() for launch in launches]

    def key(self, uid: str) -> GameKey:
        """Of the first game from a start."""
        return self[uid][0].key

    def take(self, uids: Iterable[str]) -> list[Launch]:
        """These, to account for them now."""
        return [launch for uid in [*uids] for launch in self.pop(uid)]

    def opponents(self) -> set[str]:
        """The models that the run serves itself and that they are played against."""
        seats = [launches[0].seat for launches in self.values()]
        return {seat.opponent.name for seat in seats if seat.model}


def launch(batch: Any, launched: Launched, league: League) -> None:
    """Give the starts of a batch of rows their keys and seats, and note what they launch; before they are played.

    A start whose step was not known gets its key here, the step's next. Who plays the games from it is written into the
    batch; questions have their seats.
    """
    keys, rows = [GameKey(**key) for key in list(batch["key"])], list(batch["seat"])
    if keys[0].step == 0:
        step, before = int(batch["global_steps"]), len(launched.games())
        keys = [replace(key, step=step, index=before + i) for i, key in enumerate(keys)]
        assign_non_tensor_stack(batch, "key", [key.to_dict() for key in keys])
    if all(row["opponent"] == SELF_PLAY for row in rows):
        seats = [league.seat(key, str(game)) for key, game in zip(keys, list(batch["data_source"]), strict=True)]
        sessions = [
            int(number) // len(row["trainable"]) * len(seat.trainable)
            for number, row, seat in zip(list(batch["__rollout_n__"]), rows, seats, strict=True)
        ]
        assign_non_tensor_stack(batch, "seat", [seat.columns()["seat"] for seat in seats])
        assign_non_tensor_stack(batch, "__rollout_n__", sessions)
    launched.update(launches(batch))


def launches(batch: Any) -> Iterator[tuple[str, list[Launch]]]:
    """The uid of each row of a batch, and the games that it launches: each has a session for each trainable player, and
    the row's key, counted on."""
    columns = (list(batch[name]) for name in ("uid", "key", "seat", "__rollout_n__"))
    for uid, row_key, row_seat, number in zip(*columns, strict=True):
        key, seat = GameKey(**row_key), Seat.from_row({"seat": row_seat})
        players = len(seat.trainable)
        sessions = [f"{uid}_{session}" for session in range(int(number))]
        of_games = [tuple(sessions[first : first + players]) for first in range(0, len(sessions), players)]
        yield str(uid), [Launch(replace(key, index=key.index + n), seat, names) for n, names in enumerate(of_games)]
