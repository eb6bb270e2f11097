"""Connect Four on six rows and seven columns; player 0 is X and moves first."""

from __future__ import annotations

from .base import Game, IllegalAction, win

ROWS, COLUMNS = 6, 7
MARKS = ("X", "O")
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


class ConnectFour(Game):
    """Discs fall to the lowest free row of their column; four in a row, in any direction, win."""

    perfect_information = True
    max_turns = ROWS * COLUMNS
    actions = tuple(f"[{column}]" for column in range(COLUMNS))

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.columns: list[list[int]] = [[] for _ in range(COLUMNS)]  # each from the bottom up
        self.winner: int | None = None

    @staticmethod
    def spellings(action: str) -> tuple[str, ...]:
        return (f"col {action}", f"column {action}")

    @property
    def current_player(self) -> int:
        return sum(map(len, self.columns)) % 2

    @property
    def is_terminal(self) -> bool:
        return self.winner is not None or not self._free()

    def _free(self) -> list[int]:
        return [column for column, discs in enumerate(self.columns) if len(discs) < ROWS]

    def legal_actions(self) -> tuple[str, ...]:
        return () if self.winner is not None else tuple(f"[{column}]" for column in self._free())

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"column {action} has no room")
        player, column = self.current_player, int(action[1])
        row = len(self.columns[column])
        self.columns[column].append(player)
        for dx, dy in DIRECTIONS:
            if 1 + self._run(column, row, dx, dy, player) + self._run(column, row, -dx, -dy, player) >= 4:
                self.winner = player

    def _run(self, column: int, row: int, dx: int, dy: int, player: int) -> int:
        """The number of the player's discs that follow in one direction."""
        length = 0
        while True:
            column, row = column + dx, row + dy
            if not (0 <= column < COLUMNS and 0 <= row < len(self.columns[column])):
                return length
            if self.columns[column][row] != player:
                return length
            length += 1

    def rewards(self) -> tuple[float, float]:
        return win(self.winner)

    def observation(self, player: int) -> str:
        free = " ".join(map(str, self._free()))
        return (
            f"Connect Four. Discs fall to the lowest free row of a column; four in a row (also diagonal) win. "
            f"Your disc is {MARKS[player]}, the opponent's is {MARKS[1 - player]}.\n{self.render()}\n"
            f"Answer with the number of a column with room ({free}), for example [{free[:1]}]."
        )

    def render(self) -> str:
        lines = [" ".join(map(str, range(COLUMNS)))]
        for row in reversed(range(ROWS)):
            lines.append(" ".join(MARKS[discs[row]] if row < len(discs) else "." for discs in self.columns))
        return "\n".join(lines)
