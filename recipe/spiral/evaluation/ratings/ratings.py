"""Ratings from games: how strong everybody is, on Elo's scale, with intervals, and what the games' roles are worth.

The model is ``davidson``'s. 400 points are odds of 10 to 1 of winning to losing, draws aside; the advantage of playing
first is the game's, and is in nobody's rating. Who won all games has a finite rating, because ratings have a prior
(normal, 800 Elo wide); its interval is wide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...play.intervals import Z
from . import davidson
from .davidson import ELO, Fit, Floats
from .game_results import Meeting


class NotConnected(ValueError):
    """Some players never met the others, not even through third ones: no rating compares them."""


@dataclass(frozen=True)
class Estimate:
    """A figure and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Rating:
    """A player's.

    Attributes:
        name: the player's.
        elo: above (below) the anchor, or the mean of all.
        games: how many it played against others.
        points: of those, with half of one for a draw.
    """

    name: str
    elo: Estimate
    games: int
    points: float


@dataclass(frozen=True)
class GameTerms:
    """What the fit says of a game.

    Attributes:
        first_player: what playing first is worth, in Elo.
        draws: the probability of a draw between equals.
        games: how many there were.
    """

    game: str
    first_player: Estimate
    draws: float
    games: int


class Ratings:
    """Everybody's ratings.

    Args:
        played: the games that count; a player's against itself tell of the game.
        anchor: whose rating is 0; None: the mean of all is.

    Raises:
        NotConnected: not everybody can be compared.
        ValueError: there are no games, or the anchor played none.
    """

    def __init__(self, played: Sequence[Meeting], anchor: str | None = None) -> None:
        if not played:
            raise ValueError("no games, no ratings")
        self.names = sorted({name for meeting in played for name in (meeting.first, meeting.second)})
        self.anchor = anchor
        if anchor is not None and anchor not in self.names:
            raise ValueError(f"anchor={anchor}: played no game; there are {', '.join(self.names)}")
        _check_connected(self.names, played)
        self._place = {name: place for place, name in enumerate(self.names)}
        self.fit: Fit = davidson.fit(
            played,
            len(self.names),
            lambda meeting: ((self._place[meeting.first], 1.0), (self._place[meeting.second], -1.0)),
        )
        self._games: Counter[str] = Counter()
        self._points: Counter[str] = Counter()
        self._of_game: Counter[str] = Counter(meeting.game for meeting in played)
        halves = {"win": (2, 0), "draw": (1, 1), "loss": (0, 2)}
        for meeting in played:
            if meeting.first != meeting.second:
                for name, points in zip(meeting[:2], halves[meeting.outcome], strict=True):
                    self._games[name] += 1
                    self._points[name] += points

    @property
    def players(self) -> list[Rating]:
        """Best first; of equals, by name."""
        origin = np.zeros(len(self.fit.values))
        if self.anchor is None:
            origin[: len(self.names)] = 1 / len(self.names)
        else:
            origin[self._place[self.anchor]] = 1
        ratings = []
        for name in self.names:
            contrast = self._unit(self._place[name]) - origin
            ratings.append(Rating(name, self._estimate(contrast), self._games[name], self._points[name] / 2))
        return sorted(ratings, key=lambda rating: (-rating.elo.value, rating.name))

    @property
    def games(self) -> list[GameTerms]:
        """What the games are like, sorted."""
        terms = []
        for place, game in enumerate(self.fit.games):
            first = self._estimate(self._unit(len(self.names) + place))
            _, draw, _ = davidson.chances(0.0, self._inclination(game))
            terms.append(GameTerms(game, first, draw, self._of_game[game]))
        return terms

    def difference(self, name: str, other: str) -> Estimate:
        """By how much one is stronger than another; its interval is narrower than two ratings' side by side."""
        return self._estimate(self._unit(self._place[name]) - self._unit(self._place[other]))

    def expected(self, first: str, second: str, game: str) -> tuple[float, float, float]:
        """How likely it is that ``first`` as player 0 wins, draws and loses a game."""
        values, place = self.fit.values, self.fit.games.index(game)
        d = values[self._place[first]] - values[self._place[second]] + values[len(self.names) + place]
        return davidson.chances(float(d), self._inclination(game))

    def _inclination(self, game: str) -> float:
        return float(self.fit.values[len(self.names) + len(self.fit.games) + self.fit.games.index(game)])

    def _unit(self, place: int) -> Floats:
        unit = np.zeros(len(self.fit.values))
        unit[place] = 1.0
        return unit

    def _estimate(self, contrast: Floats) -> Estimate:
        value, half = ELO * float(contrast @ self.fit.values), Z * ELO * self.fit.error(contrast)
        return Estimate(value, value - half, value + half)


def _check_connected(names: Sequence[str], played: Sequence[Meeting]) -> None:
    met: dict[str, set[str]] = {name: set() for name in names}
    for first, second in {meeting[:2] for meeting in played}:
        met[first].add(second)
        met[second].add(first)
    reached, todo = {names[0]}, [names[0]]
    while todo:
        new = met[todo.pop()] - reached
        reached |= new
        todo += new
    if rest := sorted(set(names) - reached):
        raise NotConnected(
            f"{', '.join(rest)} never met {', '.join(sorted(reached))}, nor anybody who did: play match-ups between "
            "them, or rate them apart"
        )
