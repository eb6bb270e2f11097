"""Who can sit at the table."""

from .base import Player, PlayerFailure, Position, Response, Tokens
from .policy import Generate, Generation, PolicyPlayer, PromptTooLong
from .random_player import RandomPlayer

__all__ = [
    "Generate",
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
