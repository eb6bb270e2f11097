"""Branches of games (``branching``): continuations of a game from some of its states, which DPO compares.

A branch is one more try of its game: its key has the same start, and one of the next ``retry``. Its ``past`` are its
game's actions up to the state.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, replace
from functools import cached_property

from ..players.prompts import Encode
from ..players.records import GameRecord
from ..players.seats import Seat
from ..players.seeds import GameKey, derive_seed
from ..rollout import GameAgentLoop, Sampling


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


class BranchingLoop(GameAgentLoop):
    """Plays each game, and from some of its states continuations with other samples, to the end."""

    async def games(self, key: GameKey, game: str, seat: Seat, encode: Encode, sampling: Sampling) -> list[GameRecord]:
        """A game with its tries, and its branches. All chance is that of the game: hidden cards are those of the state.
        A branch in which a player fails is void."""
        if key.split == "train" and key.group is None:
            key = replace(key, group=key.index)  # all of its tries start alike
        tries = await super().games(key, game, seat, encode, sampling)
        played = tries[-1]
        if key.split != "train" or played.discarded is not None:
            return tries
        places = [place for place, turn in enumerate(played.turns) if turn.player in played.trainable]

        async def branch(key: GameKey, place: int) -> GameRecord:
            past = [*played.past, *(str(turn.action) for turn in played.turns[:place])]
            made, _ = await self.attempt(key, game, seat, encode, sampling, past)
            return made

        drawn = branch_keys(played.key, len(places), *self._branching)
        return [*tries, *await asyncio.gather(*(branch(key, places[place]) for key, place in drawn))]

    @cached_property
    def _branching(self) -> tuple[int, int]:
        return int(self.config.branching.states), int(self.config.branching.continuations)
