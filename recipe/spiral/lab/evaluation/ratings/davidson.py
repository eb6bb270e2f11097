"""Davidson's model of paired comparisons with draws and an advantage of the first player, fitted to games.

R. R. Davidson, JASA 65 (1970); with the order's effect, Davidson and Beaver, Biometrics 33 (1977). Let ``d`` be how
much stronger player 0 is than player 1: the difference of their strengths plus the game's first-player advantage. Let
``t`` be the game's tendency to draws. Then::

    P(player 0 wins) : P(draw) : P(player 1 wins)  =  exp(d/2) : exp(t) : exp(-d/2)

Without draws this is the model of Bradley and Terry. Counting draws as half wins in that model would make its intervals
too wide, because half a win is no outcome there. Here, too, a draw counts for a player's strength as half a win does.

The log-likelihood is concave. Each parameter has a normal prior with mean 0, so all are finite for any games.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import root
from scipy.sparse import csr_array
from scipy.special import log_softmax, softmax

from .game_results import GameResult

Floats = NDArray[np.float64]
#: Elo points for one unit of log-odds (base e): 400 points are odds of 10 to 1.
ELO = 400 / math.log(10)
#: The standard deviation of the prior of each strength, first-player advantage and tendency to draws: 800 Elo. A few
#: dozen games outweigh it.
PRIOR = 800 / ELO
_OUTCOMES = ("win", "draw", "loss")


@dataclass
class Fit:
    """The model fitted to games.

    Attributes:
        games: the games' ids, sorted.
        values: the mode of the posterior: strengths, then the games' advantages, then their tendencies to draws.
            [num_parameters]
        model_covariance: from the curvature at the mode. [num_parameters, num_parameters]
        cluster_covariance: from the differences between clusters of games ("sandwich"); None: not asked for.
            [num_parameters, num_parameters]
        log_likelihood: at the mode, without the prior.
    """

    games: list[str]
    values: Floats
    model_covariance: Floats
    cluster_covariance: Floats | None
    log_likelihood: float

    def error(self, contrast: Floats) -> float:
        """The standard error of ``contrast @ values``: the larger one of both covariances.

        The curvature knows how uncertain the strength of a player is that never lost, whose results do not vary. The
        clusters know that games which share their randomness say less than as many independent games.
        """
        covariances = (self.model_covariance, self.cluster_covariance)
        variances = [float(contrast @ covariance @ contrast) for covariance in covariances if covariance is not None]
        return math.sqrt(max(0.0, *variances))


def fit(
    results: Sequence[GameResult],
    strengths: int,
    places: Callable[[str, str], Sequence[tuple[int, float]]],
    clusters: bool = True,
) -> Fit:
    """Fit strengths, advantages and tendencies to draws to games.

    Args:
        results: the games.
        strengths: the number of strengths.
        places: for players 0 and 1, the strengths that make player 0 stronger: (index, coefficient).
        clusters: whether to compute ``cluster_covariance``.
    """
    results = sorted(results)  # the result does not depend on the order of games, not even in the last digit
    games = sorted({result.game for result in results})
    cells = {cell: row for row, cell in enumerate(dict.fromkeys(result[:3] for result in results))}
    # The log-odds of each outcome in each cell (first player, second player, game), as linear functions of the values.
    design = np.zeros((len(cells), 3, strengths + 2 * len(games)))
    for (first, second, game), row in cells.items():
        advantage = strengths + games.index(game)
        for place, coefficient in (*places(first, second), (advantage, 1.0)):
            design[row, :, place] += 0.5 * coefficient, 0.0, -0.5 * coefficient
        design[row, 1, advantage + len(games)] = 1.0
    outcomes = [(cells[result[:3]], _OUTCOMES.index(result.outcome)) for result in results]
    counts = np.zeros(design.shape[:2])
    np.add.at(counts, tuple(np.transpose(outcomes)), 1.0)
    numbers = counts.sum(axis=1, keepdims=True)

    def slopes(values: Floats) -> Floats:
        """Of the log-likelihood of one game with each outcome. [num_cells, 3, num_parameters]"""
        mean = np.einsum("co,cop->cp", softmax(design @ values, axis=1), design)
        return design - mean[:, None]

    def gradient(values: Floats) -> Floats:
        rest = numbers * softmax(design @ values, axis=1) - counts
        return np.tensordot(rest, design, axes=2) + values / PRIOR**2

    def curvature(values: Floats) -> Floats:
        expected = numbers * softmax(design @ values, axis=1)
        sides = (np.sqrt(expected)[:, :, None] * slopes(values)).reshape(-1, len(values))
        return sides.T @ sides + np.eye(len(values)) / PRIOR**2

    # The log-posterior is concave, so its gradient has one root.
    mode = root(gradient, np.zeros(design.shape[2]), jac=curvature, options={"xtol": 1e-12})
    values = mode.x
    if not mode.success and np.abs(gradient(values)).max() > 1e-6 * max(1, len(results)):
        raise RuntimeError(f"the ratings' fit does not converge: {mode.message}")
    covariance: Floats = np.linalg.inv(curvature(values)).astype(np.float64)
    log_likelihood = float((counts * log_softmax(design @ values, axis=1)).sum())
    if not clusters:
        return Fit(games, values, covariance, None, log_likelihood)
    rows = {cluster: row for row, cluster in enumerate(dict.fromkeys(result.cluster for result in results))}
    taken = [rows[result.cluster] for result in results], [3 * cell + outcome for cell, outcome in outcomes]
    membership = csr_array((np.ones(len(results)), taken), shape=(len(rows), 3 * len(cells)))
    # The sums of the slopes of each cluster's games. [num_clusters, num_parameters]
    sums = membership @ slopes(values).reshape(-1, len(values))
    spread = sums.T @ sums * len(rows) / max(len(rows) - 1, 1)
    return Fit(games, values, covariance, covariance @ spread @ covariance, log_likelihood)
