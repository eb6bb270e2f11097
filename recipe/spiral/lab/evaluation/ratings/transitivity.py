"""How much of who beats whom no rating can say: rock beats scissors, scissors beat paper, paper beats rock.

Two models are fitted to the same games. In one, each player has a strength, and strengths decide (``elo.py``); in the
other, each pair of players has its own log-odds. What the second model explains better, ratings cannot explain. This is
measured in deviance, which knows the uncertainty of log-odds: if one player of a pair won all games, their distance is
not infinite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import chdtrc

from . import davidson
from .elo import Ratings
from .game_results import GameResult, Pair


@dataclass(frozen=True)
class Transitivity:
    """What ratings leave unexplained.

    Attributes:
        cycles: (a, b, c): a is ahead of b, b of c, and c of a (``Pair.ahead``).
        decided: the number of triples of players in which somebody is ahead in all three pairs.
        triples: the number of triples in which all three pairs met.
        deviance: by how much pairs' own log-odds explain the games better than ratings do.
        degrees: the expected deviance if ratings explain everything: the number of pairs minus that of
            the differences between ratings that they tell of.
        total: by how much pairs' own log-odds explain the games better than "all are equal" does.
        unexplained: the share of what pairs' log-odds explain that ratings do not; None: there is nothing to explain.
        by_chance: the expected value of ``unexplained`` if ratings explain everything.
        p_value: the probability of so large a deviance if ratings explain everything (chi-squared). It is too small
            where games share their randomness. None if there is only as much as ratings can explain.
    """

    cycles: tuple[tuple[str, str, str], ...]
    decided: int
    triples: int
    deviance: float
    degrees: int
    total: float
    unexplained: float | None
    by_chance: float | None
    p_value: float | None


def transitivity(games: Sequence[GameResult], ratings: Ratings) -> Transitivity:
    """Compare ratings with the games that they were made from."""
    pairs = [pair for pair in ratings.head_to_head.values() if pair.name < pair.other]
    own: dict[tuple[str, str], tuple[tuple[int, float], ...]] = {}
    for place, pair in enumerate(pairs):
        own[pair.name, pair.other] = ((place, 1.0),)
        own[pair.other, pair.name] = ((place, -1.0),)
    of_pairs = davidson.fit(games, len(pairs), lambda *players: own.get(players, ()), clusters=False).log_likelihood
    of_equals = davidson.fit(games, 0, lambda *_: (), clusters=False).log_likelihood
    # Not below 0: where the prior restrains both models, either may be ahead by a little.
    total = max(0.0, 2 * (of_pairs - of_equals))
    deviance = min(total, max(0.0, 2 * (of_pairs - ratings.fit.log_likelihood)))
    # The differences of ratings that games tell of: one fewer than players, and fewer if groups of them never met.
    differences = [[(name == pair.name) - (name == pair.other) for name in ratings.names] for pair in pairs]
    degrees = len(pairs) - int(np.linalg.matrix_rank(np.array(differences, dtype=float)))
    share, by_chance = (deviance / total, min(1.0, degrees / total)) if total > 0 else (None, None)
    p_value = float(chdtrc(degrees, deviance)) if degrees else None
    return Transitivity(*cycles(ratings.head_to_head), deviance, degrees, total, share, by_chance, p_value)


def cycles(pairs: Mapping[tuple[str, str], Pair]) -> tuple[tuple[tuple[str, str, str], ...], int, int]:
    """The cycles, each beginning with the name that sorts first; the numbers of decided triples and of all triples."""
    circles, decided, triples = [], 0, 0
    ahead = {names: pair.ahead for names, pair in pairs.items()}
    for a, b, c in combinations(sorted({name for name, _ in pairs}), 3):
        if (a, b) in ahead and (b, c) in ahead and (a, c) in ahead:
            triples += 1
            signs = (ahead[a, b], ahead[b, c], ahead[c, a])
            decided += 0 not in signs
            if abs(sum(signs)) == 3:
                circles.append((a, b, c) if signs[0] == 1 else (a, c, b))
    return tuple(circles), decided, triples
