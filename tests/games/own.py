"""A game as users write them, for tests that put it into a package."""

PENNIES = '''"""Matching pennies: both choose a side at the same time; player 0 wins if they are the same."""

from recipe.spiral.games.base import Game, IllegalAction, win

SIDES = ("[heads]", "[tails]")


class Pennies(Game):
    actions = SIDES
    max_turns = 2

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.choices: list[str] = []

    @property
    def current_player(self) -> int:
        return len(self.choices)

    @property
    def is_terminal(self) -> bool:
        return len(self.choices) == 2

    def legal_actions(self) -> tuple[str, ...]:
        return () if self.is_terminal else SIDES

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action} is no side")
        self.choices.append(action)

    def rewards(self) -> tuple[float, float]:
        return win(int(self.choices[0] != self.choices[1]))

    def change_private(self, player: int) -> None:
        if player == 0 and self.choices:
            self.choices[0] = SIDES[1 - SIDES.index(self.choices[0])]

    def observation(self, player: int) -> str:
        aim = "the same side as the opponent" if player == 0 else "the other side than the opponent"
        return f"Matching pennies. You win with {aim}. Answer with [heads] or [tails]."

    def render(self) -> str:
        return f"Pennies, {self.choices}"
'''
