"""Who can sit at the table."""

from .base import Player, PlayerFailure, Position, Response, Tokens
from .policy import Generation, PolicyPlayer, PromptTooLong
from .random_player import RandomPlayer

__all__ = [
    "Generation",
    "Player",
    "PlayerFailure",
    "PolicyPlayer",
    "Position",
    "PromptTooLong",
    "RandomPlayer",
    "Response",
    "Tokens",
]
