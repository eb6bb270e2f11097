"""Where all randomness comes from: a game's key, hashed. No clock, no global generator.

The same key gives the same game, the same opponent's moves and the same sampling seeds, in whatever order and on
however many machines games are played.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, order=True)
class GameKey:
    """A game's name within its run: keys sort in the order in which a run counts its games.

    Attributes:
        split: "train" or "val".
        run_seed: the run's ``seed``.
        step: the training step that the game was played for (1, 2, ...), 0 while it is not known; in the asynchronous
            modes the block of games that it was launched in; in validation the step it was played at.
        index: the game's place within that step.
        retry: 0, or which replay of the game this is.
        group: the place of the step's first game that starts from the same state; None: no other game does.
    """

    split: str
    run_seed: int
    step: int
    index: int
    retry: int = 0
    group: int | None = field(default=None, compare=False)

    @property
    def order(self) -> tuple[str, int, int, int, int]:
        """What keys are compared by."""
        return self.split, self.run_seed, self.step, self.index, self.retry

    def start(self) -> GameKey:
        """The key that decides the initial state; in a group, the key of its first game."""
        return self if self.group is None else replace(self, index=self.group, retry=0)

    def seed(self, purpose: str, *parts: int) -> int:
        """A seed of 63 bits for one purpose ("turn", "opponent", ...) within this game."""
        return derive_seed(self.split, self.run_seed, self.step, self.index, self.retry, purpose, *parts)

    def game_seed(self) -> int:
        """The seed of the game itself: cards, dice, words."""
        return self.start().seed("game")

    def next_retry(self) -> GameKey:
        """The key of the game that is played instead of this one."""
        return replace(self, retry=self.retry + 1)

    def first_try(self) -> GameKey:
        """The key that the game had when it was launched."""
        return replace(self, retry=0) if self.retry else self

    def at_step(self, step: int) -> GameKey:
        """The key under which a game of a validation set is kept: the set is the same at every step."""
        return replace(self, step=step)

    def __str__(self) -> str:
        return f"{self.split}-{self.run_seed}-{self.step}-{self.index}-{self.retry}"

    def to_dict(self) -> dict[str, Any]:
        return dict(vars(self))


def derive_seed(*parts: str | int) -> int:
    """A seed of 63 bits from names and numbers: stable across processes, platforms and Python versions."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
