"""Who can sit at the table."""

from .alphabeta import AlphaBetaPlayer
from .base import Player, PlayerFailure, PlayerMisconfigured, Position, Response, Tokens, Usage
from .perfect import PerfectPlayer
from .policy import Generation, PolicyPlayer, PromptTooLong
from .random_player import RandomPlayer

__all__ = [
    "AlphaBetaPlayer",
    "Generation",
    "PerfectPlayer",
    "Player",
    "PlayerFailure",
    "PlayerMisconfigured",
    "PolicyPlayer",
    "Position",
    "PromptTooLong",
    "RandomPlayer",
    "Response",
    "Tokens",
    "Usage",
]
