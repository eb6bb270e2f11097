"""Snake for two: both move at the same time; the survivor wins, and among survivors the one with more apples."""

from __future__ import annotations

from collections.abc import Iterable

from .base import Game, IllegalAction, win

DIRECTIONS = {"[up]": (0, 1), "[down]": (0, -1), "[left]": (-1, 0), "[right]": (1, 0)}
Cell = tuple[int, int]  # column from the left, row from the bottom


class Snake(Game):
    """Both players choose, then both snakes move. The second player does not see the first one's choice."""

    actions = tuple(DIRECTIONS)

    def __init__(self, seed: int, size: int = 5, apples: int = 2, steps: int = 20) -> None:
        super().__init__(seed)
        self.size = size
        self.steps = steps
        self.max_turns = 2 * steps
        self.cells = [(x, y) for x in range(size) for y in range(size)]
        # Places that are opposite with respect to the board's middle are equally good.
        x, y = self.random.choice([cell for cell in self.cells if cell[0] != size - 1 - cell[0]])
        self.snakes: list[list[Cell]] = [[(x, y)], [(size - 1 - x, size - 1 - y)]]  # heads first
        self.apples: list[Cell] = []
        for _ in range(apples):
            self._grow_apple()
        self.eaten = [0, 0]
        self.alive = [True, True]
        self.time = 0
        self.choices: list[str] = []

    def _grow_apple(self) -> None:
        taken = {*self.snakes[0], *self.snakes[1], *self.apples}
        free = [cell for cell in self.cells if cell not in taken]
        if free:
            self.apples.append(self.random.choice(free))

    @staticmethod
    def spellings(action: str) -> tuple[str, ...]:
        return ({"[up]": "w", "[down]": "s", "[left]": "a", "[right]": "d"}[action],)

    @property
    def current_player(self) -> int:
        return len(self.choices)

    @property
    def is_terminal(self) -> bool:
        return self.time >= self.steps or not all(self.alive)

    def legal_actions(self) -> tuple[str, ...]:
        return () if self.is_terminal else self.actions

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action} is no direction")
        self.choices.append(action)
        if len(self.choices) == 2:
            self._move(self.choices)
            self.choices = []
            self.time += 1

    def _move(self, choices: Iterable[str]) -> None:
        old = [snake[0] for snake in self.snakes]
        heads = [(x + DIRECTIONS[c][0], y + DIRECTIONS[c][1]) for (x, y), c in zip(old, choices, strict=True)]
        eats = [head in self.apples for head in heads]
        # A tail moves on in the same step unless its snake eats, so another snake may enter its cell.
        bodies = {
            cell for snake, eating in zip(self.snakes, eats, strict=True) for cell in (snake if eating else snake[:-1])
        }
        collide = heads[0] == heads[1] or heads == old[::-1]  # the same cell, or they change places
        for player, head in enumerate(heads):
            outside = not (0 <= head[0] < self.size and 0 <= head[1] < self.size)
            self.alive[player] = not (outside or collide or head in bodies)
            self.snakes[player] = [head, *(self.snakes[player] if eats[player] else self.snakes[player][:-1])]
            self.eaten[player] += eats[player] and self.alive[player]
        if all(self.alive):
            self.apples = [apple for apple in self.apples if apple not in heads]
            for _ in range(sum(eats)):
                self._grow_apple()

    def rewards(self) -> tuple[float, float]:
        # The first death ends the game; if both die in one step, the apples decide as they do among survivors.
        mine, other = ((self.alive[player], self.eaten[player]) for player in (0, 1))
        return win(None if mine == other else int(mine < other))

    def observation(self, player: int) -> str:
        return (
            "Snake. Both snakes move one cell at the same time. Eating an apple (A) makes a snake one cell longer. A "
            "wall or a body kills, and so do heads that meet or change places. The survivor wins; if both or neither "
            "live, more apples eaten.\n"
            f"{self._board(player)}\n"
            "@ is your head, a number a part of your body. X is the opponent's head, x with a number a part of its "
            "body. A part with 1 leaves its cell in this step, with 2 in the next, and so on, each a step later "
            "whenever its snake eats. X leaves its cell in this step if its snake has no other part and does not eat.\n"
            f"Apples eaten: you {self.eaten[player]}, opponent {self.eaten[1 - player]}. "
            f"Steps left: {self.steps - self.time}.\n"
            "Answer with [up], [down], [left] or [right]."
        )

    def _board(self, player: int) -> str:
        symbols = dict.fromkeys(self.apples, "A")
        for owner, head, mark in ((1 - player, "X", "x"), (player, "@", "")):
            snake = self.snakes[owner]
            symbols |= {cell: f"{mark}{len(snake) - i}" for i, cell in enumerate(snake)} | {snake[0]: head}
        width = max(map(len, symbols.values()))
        return "\n".join(
            " ".join(symbols.get((x, y), ".").rjust(width) for x in range(self.size))
            for y in reversed(range(self.size))
        )

    def change_private(self, player: int) -> None:
        if player == 0 and self.choices:
            self.choices[0] = next(direction for direction in DIRECTIONS if direction != self.choices[0])

    def render(self) -> str:
        return (
            f"{self._board(0)}\nStep {self.time} of {self.steps}. Apples eaten: player 0 (@) {self.eaten[0]}, "
            f"player 1 (X) {self.eaten[1]}.{''.join(f' Player 0 chose {choice}.' for choice in self.choices)}"
        )
