"""An endpoint as a player of one rollout process: held to its quota, and left alone while it fails.

An endpoint that fails again and again is not asked any more until the next step, so that a dead one does not hold up a
step for each of its games. Then one game asks it, and the others wait for what becomes of that. A step begins with the
first game that brings its quota; games of earlier steps, which may still be played, go on with that quota.
"""

from __future__ import annotations

import asyncio
import json

from ..players import ApiPlayer, ApiSettings, BudgetSpent, PlayerFailure, Position, Response, Usage
from .budgets import Quota, Spent

#: Failures in a row after which an endpoint is left alone.
PATIENCE = 4


class LeftAlone(PlayerFailure):
    """The endpoint has failed too often in this step: it was not asked."""

    again = False


class EndpointPlayer(ApiPlayer):
    """An ``ApiPlayer`` in training. It starts with what its settings allow, until there is a quota."""

    def __init__(self, settings: ApiSettings, name: str) -> None:
        super().__init__(settings, name)
        self._quota = 0  # its number
        self._unreported = Usage()
        self._failures = 0  # in a row
        #: It was left alone in the step before, and nobody has asked it since.
        self._untried = False
        self._trial = asyncio.Lock()

    def take(self, quota: str) -> None:
        """Spend this quota from here on, and ask again if the endpoint was left alone; an older one changes nothing.

        What was not reported yet counts for the new quota, because the trainer did not know of it. ``quota`` is a
        ``Quota`` as JSON; "" changes nothing, either.
        """
        if not quota or (new := Quota(**json.loads(quota))).number <= self._quota:
            return
        self._quota, self.limit, self.spent = new.number, new, self._unreported
        self._untried = self._failures >= PATIENCE
        self._failures = PATIENCE - 1 if self._untried else 0

    async def respond(self, position: Position) -> Response:
        if self._untried:
            async with self._trial:  # one game asks, the others wait
                if self._untried:
                    return await self._ask(position)
        return await self._ask(position)

    async def _ask(self, position: Position) -> Response:
        try:
            response = await super().respond(position)
        except (BudgetSpent, LeftAlone):
            raise
        except PlayerFailure:
            self._failures, self._untried = self._failures + 1, False
            raise
        self._untried = False
        if self._failures < PATIENCE:
            self._failures = 0
        return response

    def check(self) -> None:
        if self._failures >= PATIENCE:
            raise LeftAlone(f"{self.name}: it failed {self._failures} times in a row, and is left alone in this step")
        super().check()

    def count(self, usage: Usage) -> None:
        super().count(usage)
        self._unreported += usage

    def report(self) -> Spent:
        """What was spent since the last report."""
        usage, self._unreported = self._unreported, Usage()
        return Spent(self.name, usage, self.doubt)
