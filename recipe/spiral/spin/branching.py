"""Branches of games (``branching``): continuations of a game from some of its states, which DPO compares.

A branch's ``past`` are its game's actions up to the state; ``branches`` says what its key is.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import cached_property

from ..players.prompts import Encode
from ..players.records import GameRecord
from ..players.seats import Seat
from ..players.seeds import GameKey
from ..rollout import GameAgentLoop, Sampling
from .branches import branch_keys


class BranchingLoop(GameAgentLoop):
    """Plays each game, and from some of its states continuations with other samples, to the end."""

    async def games(self, key: GameKey, game: str, seat: Seat, encode: Encode, sampling: Sampling) -> list[GameRecord]:
        """A game with its tries, and its branches. All chance is that of the game: hidden cards are those of the state.
        A branch in which a player fails is void."""
        states, continuations = self._branching
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

        drawn = branch_keys(played.key, len(places), states, continuations)
        return [*tries, *await asyncio.gather(*(branch(key, places[place]) for key, place in drawn))]

    @cached_property
    def _branching(self) -> tuple[int, int]:
        return int(self.config.branching.states), int(self.config.branching.continuations)
