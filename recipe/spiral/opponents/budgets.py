"""What opponents behind endpoints may cost: one budget for a run, shared among its rollout processes, and patience.

Each process counts what its players have spent; the totals travel with its games. At each step the trainer lets every
process spend an equal part of what is left, so that a run oversteps its budget by no more than the requests that are
under way when it is reached. An endpoint that fails again and again is left alone until the next step, so that a dead
one does not hold up a step for each of its games; then one game tries it, and the others wait for what becomes of that.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ..play.players import ApiPlayer, BudgetSpent, Limit, PlayerFailure, Position, Response, Usage

#: Failures in a row after which a player is not asked any more in a step.
PATIENCE = 4


@dataclass(frozen=True)
class Spent:
    """What a process's player has spent since the process began."""

    process: str
    player: str
    usage: Usage

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Spent:
        return cls(data["process"], data["player"], Usage(**data["usage"]))


class Purse:
    """A process's side, at the table in its player's place: holds it to the part of a step.

    Args:
        player: whose limit it sets.
    """

    def __init__(self, player: ApiPlayer) -> None:
        self.player = player
        self.name = player.name
        self._part = ""
        self._failures = 0
        self._doubtful = False
        self._trying = asyncio.Lock()

    async def respond(self, position: Position) -> Response:
        """The player's answer.

        Raises:
            PlayerFailure: it has none.
        """
        if self._doubtful:
            async with self._trying:  # one asks, the others wait for what becomes of it
                if self._doubtful:
                    return await self._ask(position, patience=1)
        return await self._ask(position, PATIENCE)

    async def _ask(self, position: Position, patience: int) -> Response:
        try:
            response = await self.player.respond(position)
        except BudgetSpent:
            raise
        except PlayerFailure:
            self._failures += 1
            if self._failures >= patience and self.player.closed is None:
                self.player.closed = f"it failed {self._failures} times in a row, and is left alone in this step"
            self._doubtful = self._doubtful and self.player.closed is None
            raise
        self._failures, self._doubtful = 0, False
        return response

    def allow(self, part: str) -> None:
        """At the first game of a step or a validation, ask again, and let the player spend ``part``.

        Args:
            part: ``Budget.part`` of that step, which is another for each; "" changes nothing.
        """
        if part in ("", self._part):
            return
        self._part, self._failures = part, 0
        self._doubtful, self.player.closed = self.player.closed is not None, None
        told = json.loads(part)
        limit, spent = Limit(told["tokens"], told["usd"]), self.player.spent
        self.player.limit = Limit(
            None if limit.tokens is None else spent.tokens + limit.tokens,
            None if limit.usd is None else (spent.cost or 0.0) + limit.usd,
        )


class Budget:
    """The trainer's side: what one opponent has spent in the whole run, and what is left.

    Args:
        limit: of the run.
        processes: how many rollout processes share it.
    """

    def __init__(self, limit: Limit, processes: int) -> None:
        self.limit = limit
        self._processes = processes
        self._parts = 0
        self._before = Usage()
        self._since: dict[str, Usage] = {}

    @property
    def spent(self) -> Usage:
        return sum(self._since.values(), self._before)

    @property
    def reached(self) -> bool:
        return self.limit.reached(self.spent)

    def count(self, totals: Iterable[Spent]) -> None:
        """Take in processes' totals, in any order: they only grow."""
        for total in totals:
            known = self._since.get(total.process, Usage())
            self._since[total.process] = max(known, total.usage, key=lambda usage: usage.tokens)

    def part(self) -> str:
        """What each process may spend in the step or validation that begins, for its rows; null is no limit.

        Rounded up, so that something is left to be spent until the budget is reached.
        """
        self._parts += 1
        spent, limit = self.spent, self.limit
        tokens = None if limit.tokens is None else math.ceil(max(limit.tokens - spent.tokens, 0) / self._processes)
        usd = None if limit.usd is None else max(limit.usd - (spent.cost or 0.0), 0.0) / self._processes
        return json.dumps({"tokens": tokens, "usd": usd, "part": self._parts})

    def state_dict(self) -> dict[str, Any]:
        return asdict(self.spent)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a ``state_dict``; of several, what was spent is the most."""
        self._before = max(self._before, Usage(**state), key=lambda usage: (usage.tokens, usage.cost or 0.0))
