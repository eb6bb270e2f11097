"""Elo ratings: every player's strength with its interval, the advantage of playing first in each game, and who beats
whom.

The model is Davidson's (``davidson.py``). 400 points are odds of 10 to 1 of winning to losing, draws aside. The
advantage of playing first belongs to the game and is in nobody's rating. A player that won all its games, or never met
the others, has a finite rating with a wide interval, because ratings have a prior (normal, 800 Elo wide). Intervals
take games for independent, also where they share their randomness.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from scipy.special import expit

from ...training.metrics import Z, wilson
from .davidson import ELO, Fit, Floats, Outcomes, fit

#: The scope of ratings over all games together.
ALL = "all games"
#: Games whose rewards are chips: whoever wins more games need not win more chips.
_OF_CHIPS = ("KuhnPoker",)


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


@dataclass
class Pair:
    """A player's games against another player, as player 0 and as player 1 together.

    ``score`` is the share of the points, with its 95% interval, which is rather too wide if there are draws.
    """

    name: str
    other: str
    wins: int
    draws: int
    losses: int
    games: int = field(init=False)
    score: float = field(init=False)
    low: float = field(init=False)
    high: float = field(init=False)

    def __post_init__(self) -> None:
        self.games = self.wins + self.draws + self.losses
        self.score = self.points / self.games
        self.low, self.high = wilson(self.points, self.games)

    @property
    def points(self) -> float:
        """A draw is half a point."""
        return self.wins + self.draws / 2


@dataclass(frozen=True)
class Ratings:
    """Everybody's ratings in a scope, which is ``ALL`` or a game's id.

    Attributes:
        note: where they do not measure strength.
        anchor: the player whose rating is 0; None: the mean of all ratings is 0.
        players: best first; equal ones by name.
        games: sorted.
        head_to_head: all pairs of players that met, each from both sides, sorted by their two names.
    """

    scope: str
    note: str
    anchor: str | None
    players: list[Rating]
    games: list[GameTerms]
    head_to_head: list[Pair]


def rate_all(outcomes: Outcomes, anchor: str | None = None) -> list[Ratings]:
    """Ratings over all games, if there are several, and for each game; of two players, the results say everything.
    An anchor that did not play a scope's games is none there."""
    games = sorted({cell[2] for cell in outcomes})
    scopes: dict[str, Outcomes] = {ALL: outcomes} if len(games) > 1 else {}
    scopes |= {game: {cell: counts for cell, counts in outcomes.items() if cell[2] == game} for game in games}
    return [
        rate(scope, of_scope, anchor)
        for scope, of_scope in scopes.items()
        if len({name for cell in of_scope for name in cell[:2]}) > 2
    ]


def rate(scope: str, outcomes: Outcomes, anchor: str | None = None) -> Ratings:
    """Ratings from games, of which there must be some."""
    fitted, pairs = fit(outcomes), head_to_head(outcomes)
    anchor = anchor if anchor in fitted.names else None
    units = np.eye(len(fitted.values))
    origin = np.mean([units[fitted.names.index(n)] for n in (fitted.names if anchor is None else [anchor])], axis=0)
    players = []
    for name, unit in zip(fitted.names, units, strict=False):
        met = [pair for pair in pairs if pair.name == name]
        games, points = sum(pair.games for pair in met), sum((pair.points for pair in met), 0.0)
        players.append(Rating(name, *_estimate(fitted, unit - origin), games, points))
    numbers: Counter[str] = Counter()
    for (*_, game), counts in outcomes.items():
        numbers[game] += sum(counts)
    advantages, tendencies = units[len(fitted.names) :], fitted.values[-len(fitted.games) :]
    terms = [
        # The probability of a draw between equals is exp(t) / (exp(t) + 2).
        GameTerms(game, Estimate(*_estimate(fitted, advantage)), float(expit(tendency - math.log(2))), numbers[game])
        for game, advantage, tendency in zip(fitted.games, advantages, tendencies, strict=False)
    ]
    players.sort(key=lambda rating: (-rating.elo, rating.name))
    return Ratings(scope, caveat(fitted.games), anchor, players, terms, pairs)


def caveat(games: Iterable[str]) -> str:
    """What is to be said beside ratings from these games, where Elo does not measure strength; "" elsewhere."""
    if not (found := sorted({*games} & {*_OF_CHIPS})):
        return ""
    return (
        f"Elo says nothing about strength in {' and '.join(found)}: it counts games won, and chips decide. A player "
        "that always bets and calls wins more games than an equilibrium does. NashConv says how strong a policy is."
    )


def head_to_head(outcomes: Outcomes) -> list[Pair]:
    """Who beats whom: all pairs of players that met, each from both sides, sorted by their two names."""
    counts: dict[tuple[str, str], Floats] = {}
    for (first, second, _), ended in outcomes.items():
        if first != second:
            for pair, of_first in (((first, second), ended), ((second, first), ended[::-1])):
                counts[pair] = counts.get(pair, np.zeros(3)) + of_first
    return [Pair(*names, *map(int, counted)) for names, counted in sorted(counts.items())]


def _estimate(fitted: Fit, contrast: Floats) -> tuple[float, float, float]:
    value, half = ELO * float(contrast @ fitted.values), Z * ELO * fitted.error(contrast)
    return value, value - half, value + half
