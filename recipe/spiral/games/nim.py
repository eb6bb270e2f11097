"""Nim: whoever takes the last object wins."""

from __future__ import annotations

from collections.abc import Sequence

from .base import Game, IllegalAction, win


class Nim(Game):
    """Take one or more objects from one pile; the last object wins."""

    perfect_information = True

    def __init__(self, seed: int, piles: Sequence[int] = (3, 4, 5)) -> None:
        super().__init__(seed)
        self.piles = list(piles)
        self.turns = 0
        self.max_turns = sum(piles)
        self.actions = self.legal_actions()

    @staticmethod
    def spellings(action: str) -> tuple[str, ...]:
        pile, count = action.strip("[]").split()
        return (f"pile {pile} {count}", f"pile {pile} take {count}", f"take {count} from pile {pile}")

    @property
    def current_player(self) -> int:
        return self.turns % 2

    @property
    def is_terminal(self) -> bool:
        return not any(self.piles)

    def legal_actions(self) -> tuple[str, ...]:
        return tuple(f"[{pile} {count}]" for pile, size in enumerate(self.piles) for count in range(1, size + 1))

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action}: that pile has not so many objects")
        pile, count = action.strip("[]").split()
        self.piles[int(pile)] -= int(count)
        self.turns += 1

    def rewards(self) -> tuple[float, float]:
        return win(1 - self.current_player if self.is_terminal else None)

    def observation(self, player: int) -> str:
        example = next(iter(self.legal_actions()), "")
        return (
            "Nim. Take one or more objects from one pile; whoever takes the last object of all wins.\n"
            f"{self.render()}\nAnswer with [pile count], for example {example}."
        )

    def render(self) -> str:
        return "\n".join(f"Pile {pile}: {size}" for pile, size in enumerate(self.piles))
