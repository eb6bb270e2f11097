"""TicTacToe. Every square is drawn with its number, after its owner's mark if it has one: X4.

So the text itself says who owns which square and what is legal; nobody has to count squares.
"""

from __future__ import annotations

from .base import Game, IllegalAction, win

LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
MARKS = ("X", "O")


class TicTacToe(Game):
    """Three in a row on three by three squares; player 0 is X and moves first."""

    perfect_information = True
    max_turns = 9
    actions = tuple(f"[{square}]" for square in range(9))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.board: list[int | None] = [None] * 9

    @property
    def current_player(self) -> int:
        return (9 - self.board.count(None)) % 2

    @property
    def winner(self) -> int | None:
        for a, b, c in LINES:
            if self.board[a] is not None and self.board[a] == self.board[b] == self.board[c]:
                return self.board[a]
        return None

    @property
    def is_terminal(self) -> bool:
        return self.winner is not None or None not in self.board

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        return tuple(f"[{square}]" for square, owner in enumerate(self.board) if owner is None)

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"square {action} is not free")
        self.board[int(action[1])] = self.current_player

    def rewards(self) -> tuple[float, float]:
        return win(self.winner)

    def observation(self, player: int) -> str:
        return (
            f"TicTacToe: three in a row win. You are {MARKS[player]}, your opponent is {MARKS[1 - player]}. "
            f"Squares without a mark are free.\n{self.render()}\nAnswer with the number of a free square in brackets."
        )

    def render(self) -> str:
        cells = [("" if owner is None else MARKS[owner]) + str(square) for square, owner in enumerate(self.board)]
        return "\n".join(" | ".join(cells[row : row + 3]) for row in (0, 3, 6))
