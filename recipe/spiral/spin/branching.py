"""Branches of games (``branching``): continuations of a game from some of its states, which DPO compares."""

from __future__ import annotations

import asyncio
from functools import cached_property

from ..players.prompts import Encode
from ..players.records import GameRecord
from ..players.seats import Seat
from ..players.seeds import GameKey, branch_keys
from ..rollout import GameAgentLoop, Sampling


class BranchingLoop(GameAgentLoop):
    """Plays each game, and from some of its states continuations with other samples, to the end."""

    async def more(self, record: GameRecord, seat: Seat, encode: Encode, sampling: Sampling) -> list[GameRecord]:
        """A game's branches.

        All chance is that of the game: hidden cards are those of the state. A branch in which a player fails is void.
        """
        states, continuations = self._branching
        if record.key.split != "train" or record.discarded is not None:
            return []
        places = [place for place, turn in enumerate(record.turns) if turn.player in record.trainable]

        async def branch(key: GameKey, place: int) -> GameRecord:
            past = [*record.past, *(str(turn.action) for turn in record.turns[:place])]
            made, _ = await self.attempt(key, record.game, seat, encode, sampling, past)
            return made

        drawn = branch_keys(record.key, len(places), states, continuations)
        return list(await asyncio.gather(*(branch(key, places[place]) for key, place in drawn)))

    @cached_property
    def _branching(self) -> tuple[int, int]:
        return int(self.config.branching.states), int(self.config.branching.continuations)
