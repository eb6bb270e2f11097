"""Perfect play, for the games that are solved here: ``GAMES`` names them.

In a game of perfect information the player keeps the value of the position: among the actions that do, it draws
uniformly, so that games differ. It does not look for the shortest win, and in a lost position any action will do. In
Kuhn poker it plays an equilibrium. All draws are seeded by the game's key, the player and the turn, and nothing is used
that the player may not know.
"""

from __future__ import annotations

import math
import random
from fractions import Fraction

from ....games import Game, resolve
from ....games.kuhn_poker import KuhnPoker
from ....games.nim import Nim
from ....games.tictactoe import TicTacToe
from ....players.base import Position, Response
from ....players.prompts import boxed
from . import kuhn as kuhn_poker
from . import positions

#: The ids of the games that have a perfect player. (Connect Four has ``AlphaBetaPlayer``.)
GAMES = ("KuhnPoker", "KuhnPoker-3", "KuhnPoker-5", "Nim", "TicTacToe")


def check_game(game_id: str) -> None:
    """Raises a ``ValueError`` if there is no perfect player for the game of this id or alias."""
    if resolve(game_id) not in GAMES:
        raise _unsolved(game_id)


def _unsolved(name: str) -> ValueError:
    return ValueError(f"{name} has no perfect player; the games that have one are {', '.join(GAMES)}")


def optimal_actions(game: Game) -> tuple[str, ...]:
    """The legal actions that keep the position's value for the player who is to move; () once the game is over.

    Raises:
        ValueError: the game is not TicTacToe or Nim. (Kuhn poker has probabilities: ``kuhn_poker.strategy``.)
    """
    match game:
        case TicTacToe():
            return positions.tictactoe(game)
        case Nim():
            return positions.nim(game)
        case KuhnPoker():
            raise ValueError(
                "KuhnPoker: optimal actions are known of TicTacToe and Nim only; here probabilities are optimal"
            )
    raise _unsolved(type(game).__name__)


class PerfectPlayer:
    """Plays what is optimal; an answer takes some milliseconds at most."""

    name = "perfect"

    def __init__(self, alpha: float = 1 / 3) -> None:
        """``alpha`` from 0 to 1/3 chooses among the equilibria of player 0 in one round of Kuhn poker.

        Raises:
            ValueError: it is not within these bounds.
        """
        if not isinstance(alpha, int | float) or not math.isfinite(alpha):
            raise ValueError(f"alpha={alpha!r}: must be a number from 0 to 1/3")
        self.alpha = Fraction(alpha).limit_denominator(10**6)
        kuhn_poker.one_round(self.alpha)

    async def respond(self, position: Position) -> Response:
        """Answer with an optimal action; a ``ValueError`` if the game is none of ``GAMES``."""
        rng = random.Random(position.key.seed("perfect player", position.player, position.turn))
        game = position.game
        if isinstance(game, KuhnPoker):
            actions, probabilities = zip(*kuhn_poker.strategy(game, position.player, self.alpha).items(), strict=True)
            return Response(boxed(str(rng.choices(actions, probabilities)[0])))
        return Response(boxed(rng.choice(optimal_actions(game))))
