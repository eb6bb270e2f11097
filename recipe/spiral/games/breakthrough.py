"""Breakthrough: the first piece on the far row wins. Player 0 is White, at the bottom, and moves first."""

from __future__ import annotations

from .base import Game, IllegalAction, win

PIECES = ("W", "B")
FORWARD = (1, -1)


class Breakthrough(Game):
    """Pieces move one step forward, straight or diagonally, to a free square, and capture diagonally only."""

    perfect_information = True

    def __init__(self, seed: int, size: int = 8) -> None:
        super().__init__(seed)
        self.size = size
        home = ([0, 1], [size - 1, size - 2])
        self.owner = {(column, row): player for player in (0, 1) for row in home[player] for column in range(size)}
        self.turns = 0
        self.winner: int | None = None
        # Every move advances a piece by a row, and a piece that has advanced size - 1 rows wins.
        self.max_turns = 4 * size * (size - 2) + 1
        squares = [(column, row) for column in range(size) for row in range(size)]
        self.actions = tuple(
            self._write(square, target)
            for square in squares
            for player in (0, 1)
            for target in self._ahead(square, player)
        )

    @staticmethod
    def spellings(action: str) -> tuple[str, ...]:
        start, end = action[1:3], action[3:5]
        return (f"{start} {end}", f"{start}-{end}", f"{start}x{end}", f"{start} to {end}")

    @staticmethod
    def _write(start: tuple[int, int], end: tuple[int, int]) -> str:
        return f"[{'abcdefghi'[start[0]]}{start[1] + 1}{'abcdefghi'[end[0]]}{end[1] + 1}]"

    def _ahead(self, square: tuple[int, int], player: int) -> list[tuple[int, int]]:
        """The squares on the board in front of a square: left, straight, right."""
        column, row = square[0], square[1] + FORWARD[player]
        return [(c, row) for c in (column - 1, column, column + 1) if 0 <= c < self.size and 0 <= row < self.size]

    @property
    def current_player(self) -> int:
        return self.turns % 2

    @property
    def is_terminal(self) -> bool:
        return self.winner is not None

    def legal_actions(self) -> tuple[str, ...]:
        if self.is_terminal:
            return ()
        player = self.current_player
        return tuple(
            self._write(square, target)
            for square in sorted(square for square, owner in self.owner.items() if owner == player)
            for target in self._ahead(square, player)
            if self._can_enter(square, target, player)
        )

    def _can_enter(self, square: tuple[int, int], target: tuple[int, int], player: int) -> bool:
        other = self.owner.get(target)
        return other is None or (other != player and target[0] != square[0])

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action} is no move of yours now")
        player = self.current_player
        start, end = (("abcdefghi".index(action[i]), int(action[i + 1]) - 1) for i in (1, 3))
        del self.owner[start]
        self.owner[end] = player
        self.turns += 1
        far_row = self.size - 1 if player == 0 else 0
        if end[1] == far_row or 1 - player not in self.owner.values():
            self.winner = player

    def rewards(self) -> tuple[float, float]:
        return win(self.winner)

    def observation(self, player: int) -> str:
        moves = [action[1:-1] for action in self.legal_actions()] if player == self.current_player else []
        return (
            f"Breakthrough. You are {PIECES[player]} and move {'up' if player == 0 else 'down'}: one step straight or "
            "diagonally ahead to a free square (.); captures are diagonal only. The first on the far row wins, and so "
            f"does whoever captures everything.\n{self.render()}\nYour moves: {' '.join(moves)}\n"
            f"Answer with one of them, for example [{next(iter(moves), '')}]."
        )

    def render(self) -> str:
        lines = []
        for row in reversed(range(self.size)):
            cells = [self.owner.get((column, row)) for column in range(self.size)]
            lines.append(f"{row + 1} " + " ".join("." if cell is None else PIECES[cell] for cell in cells))
        return "\n".join([*lines, "  " + " ".join("abcdefghi"[: self.size])])
