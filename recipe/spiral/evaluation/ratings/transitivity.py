"""How much of who beats whom no rating can say: rock beats scissors, scissors beat paper, paper beats rock.

Two models are fitted to the same games. In one, each player has a strength, and strengths decide (``ratings``); in the
other, each pair of players has its own log-odds. What the second explains better is what ratings cannot. It is measured
in deviance, which knows how sure the log-odds are: a pair of which one won all games is not infinitely far apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from . import davidson
from .game_results import Cycles, HeadToHead, Meeting, cycles
from .ratings import Ratings


@dataclass(frozen=True)
class Transitivity:
    """What ratings leave unexplained.

    Attributes:
        cycles: three who beat each other in a circle.
        deviance: by how much pairs' own log-odds explain the games better than ratings do.
        degrees: by how much they would by chance alone, were there nothing but ratings: pairs less ratings.
        total: by how much they explain the games better than "all are equal" does.
    """

    cycles: Cycles
    deviance: float
    degrees: int
    total: float

    @property
    def unexplained(self) -> float | None:
        """The share of what pairs' log-odds explain that ratings do not; None: there is nothing to explain."""
        return self.deviance / self.total if self.total > 0 else None

    @property
    def by_chance(self) -> float | None:
        """What that share would be by chance alone."""
        return min(1.0, self.degrees / self.total) if self.total > 0 else None

    @property
    def p_value(self) -> float | None:
        """How likely so large a deviance is by chance alone; too small where games share their chance."""
        return chi_squared_tail(self.deviance, self.degrees) if self.degrees else None


def transitivity(played: Sequence[Meeting], ratings: Ratings) -> Transitivity:
    """Of the games that ``ratings`` were made from."""
    pairs = sorted({_pair(meeting) for meeting in played if meeting.first != meeting.second})
    place = {pair: number for number, pair in enumerate(pairs)}

    def own(meeting: Meeting) -> tuple[tuple[int, float], ...]:
        if meeting.first == meeting.second:
            return ()
        return ((place[_pair(meeting)], 1.0 if meeting.first < meeting.second else -1.0),)

    of_pairs = davidson.fit(played, len(pairs), own, clusters=False).log_likelihood
    of_equals = davidson.fit(played, 0, lambda meeting: (), clusters=False).log_likelihood
    # not below 0: where the prior holds both models back, either may be ahead by a hair
    total = max(0.0, 2 * (of_pairs - of_equals))
    deviance = min(total, max(0.0, 2 * (of_pairs - ratings.fit.log_likelihood)))
    return Transitivity(cycles(HeadToHead(played)), deviance, len(pairs) - (len(ratings.names) - 1), total)


def _pair(meeting: Meeting) -> tuple[str, str]:
    first, second = sorted(meeting[:2])
    return first, second


def chi_squared_tail(value: float, degrees: int) -> float:
    """The probability of at least ``value``, from that of one or two degrees up (Abramowitz and Stegun, 26.4.4-5)."""
    if value <= 0:
        return 1.0
    half = value / 2
    tail = math.erfc(math.sqrt(half)) if degrees % 2 else math.exp(-half)
    for lower in range(2 - degrees % 2, degrees, 2):
        tail += math.exp(lower / 2 * math.log(half) - half - math.lgamma(lower / 2 + 1))
    return min(1.0, tail)
