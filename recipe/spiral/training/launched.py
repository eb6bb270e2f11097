"""The games and questions that were launched and are still to be accounted for.

In sync mode a step accounts for all games that were launched for it. In the asynchronous modes it accounts for those
that were sampled or dropped; all others stay in flight.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..players.seats import Seat
from ..players.seeds import GameKey


@dataclass(frozen=True)
class Launch:
    """A game or a question under way: its key, and who sits at the table."""

    key: GameKey
    seat: Seat = field(default_factory=Seat)


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

    def take(self, split: str) -> list[GameKey]:
        """Those of a split, to account for them now: of training games the sampled ones, where games are sampled."""
        if split != "train" or self._sampled is None:
            return [launch.key for launch in self._launches.pop(split, {}).values()]
        sampled, self._sampled = self._sampled, []
        return self.take_these(sampled)

    # -- asynchronous modes --------------------------------------------------------------------------------------------

    def sample(self, uids: Iterable[str]) -> None:
        """These training games are to be accounted for by the next ``take``; the others stay in flight."""
        self._sampled = [*(self._sampled or []), *uids]

    def take_these(self, uids: Iterable[str]) -> list[GameKey]:
        """These training games, to account for them now."""
        train = self._launches["train"]
        return [train.pop(uid).key for uid in uids]

    def key(self, uid: str) -> GameKey:
        """The key of a training game."""
        return self._launches["train"][uid].key

    def seat(self, uid: str) -> Seat:
        """Who sits at the table of a training game."""
        return self._launches["train"][uid].seat

    def opponents(self) -> set[str]:
        """The models that the run serves itself and that training games are played against that were not sampled."""
        train, over = self._launches.get("train", {}), {*(self._sampled or ())}
        return {launch.seat.opponent.name for uid, launch in train.items() if launch.seat.model and uid not in over}
