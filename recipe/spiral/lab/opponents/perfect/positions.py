"""The actions that keep a position's value: in TicTacToe by search from the end backwards, in Nim by its theory."""

from __future__ import annotations

from functools import cache, reduce
from operator import xor

from ....games.nim import Nim
from ....games.tictactoe import LINES, TicTacToe

#: The squares' owners, None for a free one.
Board = tuple[int | None, ...]


def tictactoe(game: TicTacToe) -> tuple[str, ...]:
    """The actions that keep the value for the player who is to move; () once the game is over."""
    board, player = tuple(game.board), game.current_player
    return tuple(
        action
        for action in game.legal_actions()
        if -_value(_after(board, int(action[1]), player), 1 - player) == _value(board, player)
    )


@cache
def _value(board: Board, player: int) -> int:
    """The outcome for ``player``, who is to move. At most 5478 positions are kept."""
    if any(board[a] == board[b] == board[c] == 1 - player for a, b, c in LINES):
        return -1
    free = [square for square, owner in enumerate(board) if owner is None]
    return max((-_value(_after(board, square, player), 1 - player) for square in free), default=0)


def _after(board: Board, square: int, player: int) -> Board:
    return (*board[:square], player, *board[square + 1 :])


def nim(game: Nim) -> tuple[str, ...]:
    """The actions that leave piles whose binary sum without carry is 0, from which the other loses (Bouton, 1901).

    Where there are none all are as good, and all are given.
    """
    actions, total = game.legal_actions(), reduce(xor, game.piles, 0)
    winning = []
    for action in actions:
        pile, count = map(int, action.strip("[]").split())
        size = game.piles[pile]
        if total ^ size ^ (size - count) == 0:
            winning.append(action)
    return tuple(winning) or actions
