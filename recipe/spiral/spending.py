"""What opponents behind endpoints may cost: one budget for a run, shared among its rollout processes, and patience.

Each process counts what its players have spent; the totals travel with its games. At each step the trainer lets every
process spend an equal part of what is left, so that a run oversteps its budget by no more than the requests that are
under way when it is reached. An endpoint that fails again and again is left alone until the next step, so that a dead
one does not hold up a step for each of its games.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .players import ApiPlayer, BudgetSpent, Limit, PlayerFailure, Position, Response, Usage

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
        self._step = -1
        self._failures = 0

    async def respond(self, position: Position) -> Response:
        """The player's answer.

        Raises:
            PlayerFailure: it has none.
        """
        try:
            response = await self.player.respond(position)
        except BudgetSpent:
            raise
        except PlayerFailure:
            self._failures += 1
            if self._failures >= PATIENCE:
                self.player.closed = f"it failed {self._failures} times in a row, and is left alone in this step"
            raise
        self._failures = 0
        return response

    def allow(self, step: int, part: str) -> None:
        """At the first game of a step, ask again, and let the player spend ``part`` (see ``Budget.part``)."""
        if step == self._step:
            return
        self._step, self._failures, self.player.closed = step, 0, None
        if not part:
            return
        limit, spent = Limit(**json.loads(part)), self.player.spent
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
        """What each process may spend in a step, for a row; "" for as much as it likes."""
        if self.limit == Limit():
            return ""
        spent, limit = self.spent, self.limit
        tokens = None if limit.tokens is None else max(limit.tokens - spent.tokens, 0) // self._processes
        usd = None if limit.usd is None else max(limit.usd - (spent.cost or 0.0), 0.0) / self._processes
        return json.dumps({"tokens": tokens, "usd": usd})

    def state_dict(self) -> dict[str, Any]:
        return asdict(self.spent)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before, self._since = Usage(**state), {}
