"""Plays a legal action at random: the weakest opponent that knows the rules."""

from __future__ import annotations

import random

from ..prompts import boxed
from .base import Position, Response


class RandomPlayer:
    """Draws uniformly from the legal actions, seeded by the game's key, the player and the turn."""

    name = "random"

    async def respond(self, position: Position) -> Response:
        rng = random.Random(position.key.seed("random player", position.player, position.turn))
        return Response(boxed(position.game.random_action(rng)))
