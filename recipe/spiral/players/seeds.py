"""Where all randomness comes from: a game's key, hashed. No clock, no global generator.

The same key gives the same game, the same opponent's moves and the same sampling seeds, in whatever order and on
however many machines games are played.
"""

from __future__ import annotations

import hashlib
import random
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
        branch: 0, or which branch of the game this is: it has the game's past up to a state, and goes on by itself.
    """

    split: str
    run_seed: int
    step: int
    index: int
    retry: int = 0
    group: int | None = field(default=None, compare=False)
    branch: int = 0

    @property
    def order(self) -> tuple[str, int, int, int, int, int]:
        """What keys are compared by."""
        return self.split, self.run_seed, self.step, self.index, self.retry, self.branch

    def start(self) -> GameKey:
        """The key that decides the initial state; in a group, the key of its first game."""
        whole = replace(self, branch=0) if self.branch else self
        return whole if self.group is None else replace(whole, index=self.group, retry=0)

    def seed(self, purpose: str, *parts: int) -> int:
        """A seed of 63 bits for one purpose ("turn", "opponent", ...) within this game."""
        branch = ("branch", self.branch) if self.branch else ()
        return derive_seed(self.split, self.run_seed, self.step, self.index, self.retry, *branch, purpose, *parts)

    def game_seed(self) -> int:
        """The seed of the game itself: cards, dice, words."""
        return self.start().seed("game")

    def next_retry(self) -> GameKey:
        """The key of the game that is played instead of this one."""
        return replace(self, retry=self.retry + 1)

    def first_try(self) -> GameKey:
        """The key that the game had when it was launched; of a branch, that of its game."""
        return replace(self, retry=0, branch=0) if self.retry or self.branch else self

    def at_step(self, step: int) -> GameKey:
        """The key under which a game of a validation set is kept: the set is the same at every step."""
        return replace(self, step=step)

    def __str__(self) -> str:
        branch = f"-{self.branch}" if self.branch else ""
        return f"{self.split}-{self.run_seed}-{self.step}-{self.index}-{self.retry}{branch}"

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "branch" or value}


def branch_keys(key: GameKey, turns: int, states: int, continuations: int) -> list[tuple[GameKey, int]]:
    """The keys of a game's branches, each with the place of the turn that it has anew.

    Of so many turns at most ``states`` are taken anew, each ``continuations`` times.
    """
    drawn = sorted(random.Random(key.seed("branches")).sample(range(turns), min(states, turns)))
    places = [place for place in drawn for _ in range(continuations)]
    return [(replace(key, branch=number), place) for number, place in enumerate(places, start=1)]


def derive_seed(*parts: str | int) -> int:
    """A seed of 63 bits from names and numbers: stable across processes, platforms and Python versions."""
    digest = hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1
