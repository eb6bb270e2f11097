"""Players behind a test's endpoint, and a position to ask them about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from recipe.spiral.games import make
from recipe.spiral.lab.opponents.api.endpoint_player import ApiPlayer
from recipe.spiral.lab.opponents.api.endpoint_settings import ApiSettings
from recipe.spiral.players.player import Position, Response
from recipe.spiral.players.seeds import GameKey
from tests.lab.opponents.endpoint import Endpoint

KEY = "sk-secret-0123456789abcdef"
Serve = Callable[..., Endpoint]
T = TypeVar("T")


def player(endpoint: Endpoint, **settings: Any) -> ApiPlayer:
    quick = {"timeout": 2.0, "total_timeout": 4.0, "retries": 0, "api_key_env": "SOME_KEY"}
    return ApiPlayer(ApiSettings(model="some/model", base_url=endpoint.url, **{**quick, **settings}))


def position(index: int = 0, turn: int = 0) -> Position:
    game = make("TicTacToe", 0)
    return Position(GameKey("train", 3, 1, index), game, 0, turn, game.observation(0))


def run(awaitable: Awaitable[T]) -> T:
    async def main() -> T:
        return await awaitable

    return asyncio.run(main())


def respond(who: ApiPlayer, where: Position | None = None) -> Response:
    return run(who.respond(where or position()))
