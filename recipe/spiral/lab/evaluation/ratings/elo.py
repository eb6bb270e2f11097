"""Elo ratings from games: every player's strength with its interval, and the advantage of playing first in each game.

The model is Davidson's (``davidson.py``). 400 points are odds of 10 to 1 of winning to losing, draws aside. The
advantage of playing first belongs to the game and is in nobody's rating. A player that won all its games, or never met
the others, has a finite rating with a wide interval, because ratings have a prior (normal, 800 Elo wide).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ....players.intervals import Z
from . import davidson
from .davidson import ELO, Floats
from .game_results import GameResult, head_to_head

#: Games whose rewards are chips: whoever wins more games need not win more chips.
_OF_CHIPS = ("KuhnPoker",)


def caveat(games: Iterable[str]) -> str:
    """What is to be said beside ratings from these games, where Elo does not measure strength; "" elsewhere."""
    if not (found := sorted({*games} & {*_OF_CHIPS})):
        return ""
    return (
        f"Elo says nothing about strength in {' and '.join(found)}: it counts games won, and chips decide. A player "
        "that always bets and calls wins more games than an equilibrium does. NashConv says how strong a policy is."
    )


@dataclass(frozen=True)
class Estimate:
    """A figure in Elo, and its 95% interval."""

    elo: float
    low: float
    high: float


@dataclass(frozen=True)
class Rating:
    """A player's rating.

    Attributes:
        elo: its Elo minus that of the anchor, or minus the mean of all; with its 95% interval.
        games, points: against others; a draw is half a point.
    """

    name: str
    elo: float
    low: float
    high: float
    games: int
    points: float


@dataclass(frozen=True)
class GameTerms:
    """What the fit says of a game.

    Attributes:
        first_player: the advantage of playing first, in Elo.
        draws: the probability of a draw between equals.
    """

    game: str
    first_player: Estimate
    draws: float
    games: int


class Ratings:
    """Everybody's ratings.

    Args:
        results: the games. A player's games against itself only count for the game's terms.
        anchor: the player whose rating is 0, one of those that played; None: the mean of all ratings is 0.

    Raises:
        ValueError: there are no games.
    """

    def __init__(self, results: Sequence[GameResult], anchor: str | None = None) -> None:
        if not results:
            raise ValueError("no games, no ratings")
        self.names = sorted({name for result in results for name in result[:2]})
        self.anchor = anchor
        self._place = {name: place for place, name in enumerate(self.names)}
        self.fit = davidson.fit(
            results, len(self.names), lambda first, second: ((self._place[first], 1.0), (self._place[second], -1.0))
        )
        self.head_to_head = head_to_head(results)
        self._of_game = Counter(result.game for result in results)

    @property
    def players(self) -> list[Rating]:
        """All ratings, best first; equal ones by name."""
        units = np.eye(len(self.fit.values))
        anchors = self.names if self.anchor is None else [self.anchor]
        origin = np.mean([units[self._place[name]] for name in anchors], axis=0)
        ratings = []
        for name, unit in zip(self.names, units, strict=False):
            met = [pair for pair in self.head_to_head.values() if pair.name == name]
            games, points = sum(pair.games for pair in met), sum((pair.points for pair in met), 0.0)
            ratings.append(Rating(name, *self._estimate(unit - origin), games, points))
        return sorted(ratings, key=lambda rating: (-rating.elo, rating.name))

    @property
    def games(self) -> list[GameTerms]:
        """The terms of all games, sorted."""
        advantages = np.eye(len(self.fit.values))[len(self.names) :]
        tendencies = self.fit.values[-len(self.fit.games) :]
        # The probability of a draw between equals is exp(t) / (exp(t) + 2).
        return [
            GameTerms(
                game, Estimate(*self._estimate(advantage)), float(expit(tendency - math.log(2))), self._of_game[game]
            )
            for game, advantage, tendency in zip(self.fit.games, advantages, tendencies, strict=False)
        ]

    def _estimate(self, contrast: Floats) -> tuple[float, float, float]:
        value, half = ELO * float(contrast @ self.fit.values), Z * ELO * self.fit.error(contrast)
        return value, value - half, value + half
