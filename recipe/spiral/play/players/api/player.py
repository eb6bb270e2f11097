"""A language model behind an OpenAI-compatible endpoint, as a player."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from ..base import PlayerFailure, Position, Response, Usage
from .client import Client, load_openai
from .settings import ApiSettings, Limit


class BudgetSpent(PlayerFailure):
    """The player has spent what it may: nothing was asked."""

    again = False


class NotAsked(PlayerFailure):
    """The player is closed at present."""

    again = False


@dataclass
class _Connection:
    """What belongs to one event loop: connections, and the places for requests."""

    client: Client
    places: asyncio.Semaphore


@dataclass(repr=False, eq=False)
class ApiPlayer:
    """Asks an endpoint for each turn, with the present observation alone. One player serves all games of a process.

    A failing or slow endpoint costs its own games only: nothing blocks the event loop, and every response is bounded by
    ``total_timeout`` once it has its place.

    Attributes:
        settings: the endpoint and how to use it.
        name: for records and metrics.
        limit: what may be spent from the player's beginning on; it may be changed at any time, for a run that shares a
            budget among processes. Requests under way when it is reached are finished, so up to ``max_concurrency``
            responses may go beyond it.
        closed: why nothing is asked at present: while it is set, every response fails at once.
        spent: what all requests have used, those that came to nothing included. (Those are estimated by their prompt,
            where the endpoint did not count.)
    """

    settings: ApiSettings
    name: str = "api"
    limit: Limit = field(init=False)
    closed: str | None = field(init=False, default=None)
    spent: Usage = field(init=False, default_factory=Usage)
    _connections: WeakKeyDictionary[asyncio.AbstractEventLoop, _Connection] = field(
        init=False, default_factory=WeakKeyDictionary
    )

    def __post_init__(self) -> None:
        """
        Raises:
            ImportError: the openai package is not installed.
            PlayerMisconfigured: the environment variable of the key is not set.
        """
        self.settings.key()
        load_openai()
        self.limit = self.settings.limit

    def __repr__(self) -> str:
        return f"ApiPlayer({self.name!r}, model={self.settings.model!r}, base_url={self.settings.base_url!r})"

    async def respond(self, position: Position) -> Response:
        """The model's answer to the observation, with what it used.

        Raises:
            BudgetSpent: a ``PlayerFailure``: the limit is reached.
            PlayerFailure: the endpoint gives no answer.
            PlayerMisconfigured: it never will, with this key or model.
        """
        messages = self.settings.chat_template().messages(position.observation)
        # 31 bits: not every endpoint reads longer numbers.
        seed = position.key.seed("api player", position.player, position.turn) >> 32
        connection = self._connection()
        async with connection.places:
            # Behind the wait: what became of others meanwhile counts.
            if self.closed is not None:
                raise NotAsked(f"{self.name}: not asked: {self.closed}")
            if self.limit.reached(self.spent):
                raise BudgetSpent(f"{self.name}: the budget is spent: {_spent(self.spent)}, {self.limit}")
            answer, usage = await connection.client.ask(messages, seed)
        return Response(answer.text, truncated=answer.truncated, usage=usage)

    def _connection(self) -> _Connection:
        loop = asyncio.get_running_loop()
        if loop not in self._connections:
            places = asyncio.Semaphore(self.settings.max_concurrency)
            self._connections[loop] = _Connection(Client(self.settings, self._count), places)
        return self._connections[loop]

    def _count(self, usage: Usage) -> None:
        self.spent += usage

    async def close(self) -> None:
        """Let go of the running event loop's connections; the player can still be used."""
        connection = self._connections.pop(asyncio.get_running_loop(), None)
        if connection is not None:
            await connection.client.close()


def _spent(usage: Usage) -> str:
    return f"{usage.tokens} tokens" + (f" for ${usage.cost:.4f}" if usage.cost is not None else "")
