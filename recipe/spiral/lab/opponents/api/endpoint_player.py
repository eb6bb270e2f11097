"""A language model behind an OpenAI-compatible endpoint, as a player."""

from __future__ import annotations

import asyncio
import time

from ....players.player import PlayerFailure, Position, Response
from .endpoint_client import Client, NotAsked, Unpaid
from .endpoint_settings import ApiSettings
from .usage import Costs, Usage

#: Seconds for which an endpoint is left alone.
PAUSE = 60.0


class BudgetSpent(NotAsked):
    """The player has spent what it may: nothing was asked."""


class ApiPlayer:
    """Asks an endpoint for each turn, with the present observation alone. One player serves all games of a process.

    A failing or slow endpoint costs its own games only: every response is bounded by ``total_timeout`` once it has its
    place. One that fails again and again, or wants to be paid, is left alone for a while, so that a dead one does not
    take that time for each of its games.

    Attributes:
        settings: the endpoint and how to use it.
        name: for records and metrics.
        costs: what all responses have used. Those under way when the budget is reached are finished.
        patience: the number of responses that may fail one after the other: those of two rounds.
    """

    def __init__(self, settings: ApiSettings, name: str = "api", costs: Costs | None = None) -> None:
        """
        Raises:
            ImportError: the openai package is not installed.
            PlayerMisconfigured: the environment has no key.
        """
        self.settings, self.name = settings, name
        self.costs = costs or Costs()
        self.patience = 2 * settings.max_concurrency
        self.failures, self._last_failure, self._asked_again = 0, "", 0.0  # in a row
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client = Client(settings, self._count)  # now, to say at once if the environment allows none

    async def respond(self, position: Position) -> Response:
        """The model's answer to the observation, with what it used.

        Raises:
            NotAsked: the budget is spent, or the endpoint has failed too often.
            PlayerFailure: the endpoint gives no answer.
        """
        messages = self.settings.chat_template().messages(position.observation)
        # 31 bits: not every endpoint reads longer numbers.
        seed = position.key.seed("api player", position.player, position.turn) >> 32
        if self._loop not in (None, loop := asyncio.get_running_loop()):  # connections cannot change theirs
            self._client = Client(self.settings, self._count)
        self._loop, client = loop, self._client
        async with client.places:
            self._check()
            try:
                response = await client.ask(messages, seed)
            except PlayerFailure as failure:
                self.failures += self.patience if isinstance(failure, Unpaid) else 1
                self._last_failure, self._asked_again = str(failure), time.monotonic() + PAUSE
                raise
        if self.failures < self.patience:
            self.failures = 0
        return response

    def _check(self) -> None:
        """That the endpoint may be asked now."""
        if self.failures >= self.patience and time.monotonic() >= self._asked_again:
            self.failures = self.patience - 1  # the first failure leaves it alone again
        if self.failures >= self.patience:
            raise NotAsked(f"{self.name}: it is left alone after failures in a row, the last: {self._last_failure}")
        spent, settings = self.costs.of(self.name), self.settings
        if settings.budget_tokens is not None and spent.tokens >= settings.budget_tokens:
            raise BudgetSpent(f"{self.name}: budget_tokens={settings.budget_tokens} is spent: {spent.tokens} tokens")
        if settings.budget_usd is not None and (spent.cost or 0.0) >= settings.budget_usd:
            raise BudgetSpent(f"{self.name}: budget_usd={settings.budget_usd:g} is spent: ${spent.cost or 0:.4f}")

    def _count(self, usage: Usage) -> None:
        self.costs.add(self.name, usage)
