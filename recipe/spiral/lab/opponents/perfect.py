"""Perfect play, for the games that are solved here: ``GAMES`` names them.

In a game of perfect information the player keeps the value of the position: among the actions that do, it draws
uniformly, so that games differ. It does not look for the shortest win, and in a lost position any action will do. In
Kuhn poker it plays an equilibrium. All draws are seeded by the game's key, the player and the turn, and nothing is used
that the player may not know.
"""

from __future__ import annotations

import random
from functools import cache, reduce
from operator import xor

from ...games import Game, resolve
from ...games.kuhn_poker import KuhnPoker
from ...games.nim import Nim
from ...games.tictactoe import LINES, TicTacToe
from ...players.player import Position, Response
from ...players.prompts import boxed
from . import kuhn_equilibrium

#: The ids of the games that have a perfect player. (Connect Four has ``AlphaBetaPlayer``.)
GAMES = ("KuhnPoker", "KuhnPoker-3", "KuhnPoker-5", "Nim", "TicTacToe")
#: The squares' owners, None for a free one.
Board = tuple[int | None, ...]


def check_game(game_id: str) -> None:
    """Raises a ``ValueError`` if there is no perfect player for the game of this id or alias."""
    if resolve(game_id) not in GAMES:
        raise ValueError(f"{game_id} has no perfect player; the games that have one are {', '.join(GAMES)}")


def optimal_actions(game: Game) -> tuple[str, ...]:
    """The legal actions that keep the position's value for the player who is to move; () once the game is over. In
    TicTacToe and Nim only: Kuhn poker has probabilities (``kuhn_equilibrium.strategy``)."""
    values = {action: _value_of(game, action) for action in game.legal_actions()}
    return tuple(action for action, value in values.items() if value == max(values.values()))


def _value_of(game: Game, action: str) -> int:
    """The outcome for the player who takes this action: 1, 0 or -1."""
    if isinstance(game, TicTacToe):
        return -_minimax(_taken(tuple(game.board), int(action[1]), game.current_player), 1 - game.current_player)
    if isinstance(game, Nim):
        pile, count = map(int, action.strip("[]").split())
        sizes = [size - count if number == pile else size for number, size in enumerate(game.piles)]
        return -1 if reduce(xor, sizes) else 1  # Bouton, 1901
    raise ValueError(f"{type(game).__name__}: optimal actions are known of TicTacToe and Nim only")


@cache
def _minimax(board: Board, player: int) -> int:
    """TicTacToe's outcome for ``player``, who is to move. At most 5478 positions are kept."""
    if any(board[a] == board[b] == board[c] == 1 - player for a, b, c in LINES):
        return -1
    free = [square for square, owner in enumerate(board) if owner is None]
    return max((-_minimax(_taken(board, square, player), 1 - player) for square in free), default=0)


def _taken(board: Board, square: int, player: int) -> Board:
    return (*board[:square], player, *board[square + 1 :])


class PerfectPlayer:
    """Plays what is optimal; an answer takes some milliseconds at most."""

    name = "perfect"

    def __init__(self, alpha: float = 1 / 3) -> None:
        """``alpha`` from 0 to 1/3 chooses among the equilibria of player 0 in one round of Kuhn poker; a ``ValueError``
        if it is not within these bounds."""
        kuhn_equilibrium.one_round(alpha)
        self.alpha = alpha

    async def respond(self, position: Position) -> Response:
        """Answer with an optimal action; a ``ValueError`` if the game is none of ``GAMES``."""
        rng = random.Random(position.key.seed("perfect player", position.player, position.turn))
        game = position.game
        if isinstance(game, KuhnPoker):
            actions, probabilities = zip(
                *kuhn_equilibrium.strategy(game, position.player, self.alpha).items(), strict=True
            )
            return Response(boxed(str(rng.choices(actions, probabilities)[0])))
        return Response(boxed(rng.choice(optimal_actions(game))))
