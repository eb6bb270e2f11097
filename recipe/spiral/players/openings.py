"""Random first moves: self-play soon opens alike, and learns nothing of the positions that it no longer meets."""

from __future__ import annotations

import random

from ..games import Game
from .seeds import GameKey


def random_opening(key: GameKey, game: Game, longest: int) -> list[str]:
    """The moves that a game begins with, drawn uniformly by the key of its start: 0 to ``longest``, each number equally
    likely, but none that ends it. The fresh ``game`` stays as it is."""
    if not longest:
        return []
    draw, moves = random.Random(key.start().seed("opening")), list[str]()
    for _ in range(draw.randint(0, longest)):
        game, move = game.copy(), game.random_action(draw)
        game.step(move)
        if game.is_terminal:
            break
        moves.append(move)
    return moves
