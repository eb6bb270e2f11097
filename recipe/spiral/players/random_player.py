"""Plays a legal action at random: the weakest opponent that knows the rules."""

from __future__ import annotations

import random
from functools import cache

from ..games import GameFailure, make, resolve
from .player import Position, Response
from .prompts import boxed

#: The number of games that are tried before a game is refused.
_TRIALS = 3


class RandomPlayer:
    """Draws uniformly from the legal actions, seeded by the game's key, the player and the turn."""

    name = "random"

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("random player", position.player, position.turn))
        return Response(boxed(position.game.random_action(rng)))


@cache
def check_game(game_id: str) -> None:
    """A ``ValueError`` if the game cannot be played at random, because it does not know its legal actions."""
    game_id, failure = resolve(game_id), None
    for seed in range(_TRIALS):
        game, rng = make(game_id, seed), random.Random(seed)
        try:
            while not game.is_terminal:
                game.step(game.random_action(rng))
            return
        except GameFailure as error:
            failure = error
    raise ValueError(f"the random player cannot play {game_id}: {failure}")
