"""One-round Kuhn poker with a handicap: c is added to player 0's reward and taken from player 1's, however a game ends.

Prompts, game tree, equilibria, NashConv and the expected gradient are those of Kuhn poker, so a policy can learn
differently only by what its baseline makes of the handicap. (Rewards leave [-1, 1], which the recipe asks of games that
it lists.)
"""

from __future__ import annotations

from typing import ClassVar

from recipe.spiral.games.kuhn_poker import KuhnPoker


class NoHandicap(KuhnPoker):
    """c = 0, as Kuhn poker is."""

    handicap: ClassVar[float] = 0.0

    @classmethod
    def given(cls, rewards: tuple[float, float]) -> tuple[float, float]:
        """Rewards with the handicap. A match judges illegal answers by its own rules, so theirs need it as well: with
        c = 1 player 1 would otherwise get as much for an illegal answer as for a fold."""
        return rewards[0] + cls.handicap, rewards[1] - cls.handicap

    def rewards(self) -> tuple[float, float]:
        return self.given(super().rewards())


class HalfHandicap(NoHandicap):
    """c = 0.5."""

    handicap: ClassVar[float] = 0.5


class WholeHandicap(NoHandicap):
    """c = 1, the largest reward of a game."""

    handicap: ClassVar[float] = 1.0


#: The games by c.
GAMES: dict[float, type[NoHandicap]] = {game.handicap: game for game in (NoHandicap, HalfHandicap, WholeHandicap)}
