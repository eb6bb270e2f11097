"""The keys of branches: games that go on from a state of another game.

A branch is one more try of its game: its key has the same start, and one of the next ``retry``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

from ..players.records import GameRecord
from ..players.seeds import GameKey, derive_seed


@dataclass(frozen=True, order=True)
class BranchKey(GameKey):
    """The key of the ``branch``-th branch of a game, while it is played: all chance but the game's own is the branch's.
    In records it is a ``GameKey``."""

    branch: int = 1

    def start(self) -> GameKey:
        parts = {name: value for name, value in vars(self).items() if name != "branch"}
        return GameKey(**parts).start()

    def seed(self, purpose: str, *parts: int) -> int:
        game = self.split, self.run_seed, self.step, self.index, self.retry - self.branch
        return derive_seed(*game, "branch", self.branch, purpose, *parts)


def branch_keys(key: GameKey, turns: int, states: int, continuations: int) -> list[tuple[GameKey, int]]:
    """The keys of a game's branches, each with the place of the turn that it has anew.

    Of so many turns at most ``states`` are taken anew, each ``continuations`` times.
    """
    drawn = sorted(random.Random(key.seed("branches")).sample(range(turns), min(states, turns)))
    places = [place for place in drawn for _ in range(continuations)]
    game = vars(replace(key, group=key.index) if key.group is None else key)
    return [
        (BranchKey(**{**game, "retry": key.retry + number}, branch=number), place)
        for number, place in enumerate(places, start=1)
    ]


def without_branches(records: Iterable[GameRecord]) -> list[GameRecord]:
    """Of games that count, in the order of their keys, those that are no branches."""
    first: dict[GameKey, GameRecord] = {}
    for record in records:
        first.setdefault(record.key.first_try(), record)
    return [*first.values()]
