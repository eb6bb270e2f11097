"""The variance of a policy-gradient estimate under different baselines, from games that were played once.

A game's estimate is ``g = sum over players p of (R_p - b_p) S_p``. The score S_p is the gradient of the sum of the
log-probabilities of p's responses. A batch's estimate is the mean of g over its games; its variance is the trace of its
covariance. Every figure here is that variance times the number of games N, so schemes compare at the same number of
games. All schemes estimate the same gradient: E[S_p] = 0, so a baseline that does not depend on a game's actions does
not change the mean.

The expectation of |g|^2 is a quadratic form in the inner products of the scores of one game (for group means: of a
group's games), which are exact. Only |E g|^2, which is subtracted, needs inner products between groups, and a random
sketch is enough for them (``scoring.Sketch``). It is the same for every scheme, so it is estimated once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: No baseline; one mean for both players; each role's mean, as if it were known; RAE's moving average of it; the role's
#: mean over the batch's other games; over the group's other games; the two constants with the least variance.
SCHEMES = ("none", "common", "role_mean", "rae", "batch", "group", "best")


@dataclass(frozen=True)
class Scores:
    """Outcomes and scores of games in groups of k; the games of a group start from the same state.

    Attributes:
        rewards: R. [groups, k, 2]
        products: inner products of the scores within a group; score 2 i + p is player p's of game i.
            [groups, 2 k, 2 k]
        sums: sketches of three sums over a group's games and players: R S, S_0, S_1. [groups, 3, sketch]
    """

    rewards: Array
    products: Array
    sums: Array

    def __post_init__(self) -> None:
        groups, k = self.rewards.shape[:2]
        assert groups > 1 and k > 1, "a variance needs at least two groups of two games"
        assert self.products.shape == (groups, 2 * k, 2 * k) and self.sums.shape[:2] == (groups, 3)

    @classmethod
    def join(cls, several: Sequence[Scores]) -> Scores:
        """The groups of all of them."""
        return cls(
            *(np.concatenate([getattr(scores, name) for scores in several]) for name in cls.__dataclass_fields__)
        )

    def blocks(self) -> Array:
        """The products within single games. [groups, k, 2, 2]"""
        groups, k = self.rewards.shape[:2]
        split = self.products.reshape(groups, k, 2, k, 2)
        return np.moveaxis(np.diagonal(split, axis1=1, axis2=3), -1, 1)


class Estimator:
    """Computes the variances under every scheme, from all groups or from a resample of them.

    Args:
        scores: the games.
        decay: RAE's; the baseline moves once per game.
        batch: N; in "batch" the baseline is the mean of the other N - 1 games.
        handicap: a constant added to player 0's outcome and subtracted from player 1's.
    """

    def __init__(self, scores: Scores, decay: float = 0.95, batch: int = 128, handicap: float = 0.0) -> None:
        self._raw = scores.rewards
        self._rewards = scores.rewards + handicap * np.array([1.0, -1.0])
        self._k = scores.rewards.shape[1]
        self._decay, self._batch = decay, batch
        self._blocks = scores.blocks()
        self._sums = scores.sums / self._k
        others = self._k / (self._k - 1) * (self._rewards - self._rewards.mean(axis=1, keepdims=True))
        self._group_squares = self._squares(others, scores.products)

    def _squares(self, advantages: Array, products: Array) -> Array:
        """|mean of a group's g|^2. [groups]"""
        a = advantages.reshape(len(advantages), -1) / self._k
        return np.einsum("ui,uij,uj->u", a, products, a)

    def all(self) -> dict[str, float]:
        """N times the variance under every scheme, from all groups."""
        return self.of(np.ones(len(self._rewards)))

    def of(self, counts: Array) -> dict[str, float]:
        """The same when each group counts so many times. counts: [groups]"""
        weights = counts / counts.sum()
        mean = self._mean(weights, self._rewards)
        off = self._rewards - mean
        covariance = np.einsum("u,ukp,ukq->pq", weights, off, off) / self._k
        products = self._mean(weights, self._blocks)
        moved = np.einsum("ukpq,ukq->ukp", self._blocks, self._rewards)
        best: Array = np.asarray(np.linalg.lstsq(products, self._mean(weights, moved), rcond=None)[0])
        # what the baseline's own randomness costs: Cov(b) is a multiple of Cov(R)
        noise = float(np.sum(covariance * products))
        signal = self.signal(counts)
        role_mean = self._second_moment(weights, mean) - signal
        # b is independent of the batch; the variance of a settled moving average is this share of Var(R)
        moving = (1 - self._decay) / (1 + self._decay)
        return {
            "none": self._second_moment(weights, np.zeros(2)) - signal,
            "common": self._second_moment(weights, np.full(2, mean.mean())) - signal,
            "role_mean": role_mean,
            "rae": role_mean + moving * noise,
            # a U-statistic of pairs of games, which is why it holds the signal; exact where R_1 = -R_0
            "batch": role_mean + (noise + signal) / (self._batch - 1),
            "group": self._k * (float(weights @ self._group_squares) - signal),
            "best": self._second_moment(weights, best) - signal,
        }

    def signal(self, counts: Array | None = None) -> float:
        """|E g|^2, from pairs of different groups and therefore without bias."""
        counts = np.ones(len(self._rewards)) if counts is None else counts
        mean = self._mean(counts / counts.sum(), self._raw)
        return self._pairs(np.array([1.0, *-mean]), counts)

    def score_mean(self) -> tuple[float, float]:
        """|E S_p|^2 / E|S_p|^2 for both players; 0 but for noise if the scores are those of the policy that played."""
        counts = np.ones(len(self._rewards))
        sizes = self._mean(counts / counts.sum(), self._blocks)
        first, second = (self._pairs(np.eye(3)[1 + p], counts) / sizes[p, p] for p in (0, 1))
        return float(first), float(second)

    def _pairs(self, mix: Array, counts: Array) -> float:
        """|E v|^2 of a mix of the three sums: the mean product over pairs of different groups."""
        vectors = np.tensordot(self._sums, mix, axes=(1, 0))
        whole, same = counts @ vectors, counts**2 @ np.square(vectors).sum(axis=1)
        return float((whole @ whole - same) / (counts.sum() ** 2 - counts @ counts))

    def _mean(self, weights: Array, values: Array) -> Array:
        """Over all games: [groups, k, ...] -> [...]."""
        return np.asarray(np.tensordot(weights, values.mean(axis=1), axes=1))

    def _second_moment(self, weights: Array, baselines: Array) -> float:
        a = self._rewards - baselines
        return float(np.einsum("u,ukp,ukpq,ukq->", weights, a, self._blocks, a) / self._k)


def ratios(estimator: Estimator, groups: int, resamples: int, seed: int) -> dict[str, tuple[float, float, float]]:
    """The ratio of every scheme's variance to that without a baseline, with the ends of its 95% bootstrap interval.

    Groups are resampled, because the games of a group are not independent.
    """
    rng = np.random.default_rng(seed)
    whole = estimator.all()
    drawn = [estimator.of(_resample(rng, groups)) for _ in range(resamples)]
    result = {}
    for scheme in SCHEMES:
        low, high = np.quantile([sample[scheme] / sample["none"] for sample in drawn], [0.025, 0.975])
        result[scheme] = (whole[scheme] / whole["none"], float(low), float(high))
    return result


def _resample(rng: np.random.Generator, groups: int) -> Array:
    """How often each group is drawn. Where it is one group alone, all is drawn again: a signal needs two. [groups]"""
    while np.count_nonzero(counts := rng.multinomial(groups, np.full(groups, 1 / groups))) < 2:
        pass
    return counts.astype(float)


def expected_ratio(rewards: Array, decay: float) -> float:
    """RAE's ratio if the size of a score were independent of the outcome.

    Args:
        rewards: R. [groups, k, 2]
        decay: RAE's.
    """
    flat = rewards.reshape(-1, 2)
    moving = (1 - decay) / (1 + decay)
    return float((1 + moving) * flat.var(axis=0).sum() / np.square(flat).mean(axis=0).sum())
