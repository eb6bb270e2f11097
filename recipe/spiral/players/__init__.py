"""Who can sit at the table, what they see, and what is recorded of them.

The names below are the players. Beside them: ``prompts`` (an observation becomes tokens), ``seats`` (who sits where),
``seeds`` (a game's key, and the randomness that follows from it), ``records`` (of turns and games), ``intervals``.
"""

from .alphabeta import AlphaBetaPlayer
from .api import ApiPlayer, ApiSettings, BudgetSpent, Limit
from .base import Player, PlayerFailure, PlayerMisconfigured, Position, PromptTooLong, Response, Tokens, Usage
from .fixed import make_player
from .perfect import PerfectPlayer
from .policy import Generate, Generation, PolicyPlayer
from .random_player import RandomPlayer

__all__ = [
    "AlphaBetaPlayer",
    "ApiPlayer",
    "ApiSettings",
    "BudgetSpent",
    "Generate",
    "Generation",
    "Limit",
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
    "make_player",
]
