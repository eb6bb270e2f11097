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
from scipy.special import log_softmax

from .game_results import GameResult

Floats = NDArray[np.float64]
#: Elo points for one unit of log-odds (base e): 400 points are odds of 10 to 1.
ELO = 400 / math.log(10)
#: The standard deviation of the prior of each strength, first-player advantage and tendency to draws: 800 Elo. A few
#: dozen games outweigh it.
PRIOR = 800 / ELO
#: The coefficients of d and of t in the log-odds of win, draw and loss.
_OF_D = np.array([0.5, 0.0, -0.5])
_OF_T = np.array([0.0, 1.0, 0.0])
_PLACES = {"win": 0, "draw": 1, "loss": 2}


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
        variances = [contrast @ self.model_covariance @ contrast]
        if self.cluster_covariance is not None:
            variances.append(contrast @ self.cluster_covariance @ contrast)
        return float(np.sqrt(max(0.0, *map(float, variances))))


def fit(
    results: Sequence[GameResult],
    strengths: int,
    places: Callable[[GameResult], tuple[tuple[int, float], ...]],
    clusters: bool = True,
) -> Fit:
    """Fit strengths, advantages and tendencies to draws to games.

    Args:
        results: the games.
        strengths: the number of strengths.
        places: for a game, the strengths that make player 0 stronger: (index, coefficient). It must be the same for
            all games of the same two players.
        clusters: whether to compute ``cluster_covariance``.
    """
    results = sorted(results)  # the result does not depend on the order of games, not even in the last digit
    games = sorted({result.game for result in results})
    rows = {cell: row for row, cell in enumerate(dict.fromkeys(result[:3] for result in results))}
    # d and t of each cell (first player, second player, game) as linear functions of the parameters.
    of_d = np.zeros((len(rows), strengths + 2 * len(games)))
    of_t = np.zeros_like(of_d)
    counts = np.zeros((len(rows), 3))
    for result in results:
        row, game = rows[result[:3]], games.index(result.game)
        if not counts[row].any():
            for place, coefficient in places(result):
                of_d[row, place] += coefficient
            of_d[row, strengths + game] = 1.0
            of_t[row, strengths + len(games) + game] = 1.0
        counts[row, _PLACES[result.outcome]] += 1

    def gradient(values: Floats) -> Floats:
        rest = counts.sum(axis=1, keepdims=True) * np.exp(log_probabilities(of_d @ values, of_t @ values)) - counts
        slope: Floats = of_d.T @ (rest @ _OF_D) + of_t.T @ (rest @ _OF_T) + values / PRIOR**2
        return slope

    def curvature(values: Floats) -> Floats:
        probabilities, number = np.exp(log_probabilities(of_d @ values, of_t @ values)), counts.sum(axis=1)
        mean_d, mean_t = probabilities @ _OF_D, probabilities @ _OF_T
        dd = number * (probabilities @ _OF_D**2 - mean_d**2)
        dt = number * (-mean_d * mean_t)  # no outcome has coefficients of both
        tt = number * (mean_t - mean_t**2)
        mixed = (of_d.T * dt) @ of_t
        hessian: Floats = (of_d.T * dd) @ of_d + mixed + mixed.T + (of_t.T * tt) @ of_t + np.eye(len(values)) / PRIOR**2
        return hessian

    # The log-posterior is concave, so its gradient has one root.
    mode = root(gradient, np.zeros(of_d.shape[1]), jac=curvature, options={"xtol": 1e-12})
    values = mode.x
    if not mode.success and np.abs(gradient(values)).max() > 1e-6 * max(1, len(results)):
        raise RuntimeError(f"the ratings' fit does not converge: {mode.message}")
    log_p = log_probabilities(of_d @ values, of_t @ values)
    covariance: Floats = np.linalg.inv(curvature(values)).astype(np.float64)
    cluster_covariance = None
    if clusters:
        # The slope of one game's log-likelihood for each outcome. [num_cells, 3, num_parameters]
        probabilities = np.exp(log_p)
        slope_d = _OF_D - (probabilities @ _OF_D)[:, None]
        slope_t = _OF_T - (probabilities @ _OF_T)[:, None]
        slopes = (slope_d[:, :, None] * of_d[:, None, :] + slope_t[:, :, None] * of_t[:, None, :]).reshape(
            -1, len(values)
        )
        outcomes = [3 * rows[result[:3]] + _PLACES[result.outcome] for result in results]
        spread = _spread(slopes.reshape(-1, len(values)), outcomes, [result.cluster for result in results])
        cluster_covariance = covariance @ spread @ covariance
    return Fit(games, values, covariance, cluster_covariance, float((counts * log_p).sum()))


def log_probabilities(d: Floats, t: Floats) -> Floats:
    """The logarithms of the probabilities that player 0 wins, of a draw, and that it loses. [num_cells, 3]"""
    log_p: Floats = log_softmax(np.outer(d, _OF_D) + np.outer(t, _OF_T), axis=1)
    return log_p


def probabilities(d: float, t: float) -> tuple[float, float, float]:
    """The probabilities that player 0 wins, of a draw, and that it loses."""
    win, draw, loss = np.exp(log_probabilities(np.array([d]), np.array([t])))[0].tolist()
    return win, draw, loss


def _spread(slopes: Floats, outcomes: Sequence[int], clusters: Sequence[tuple[int, int]]) -> Floats:
    """The sum over clusters of the outer product of the summed slopes of their games, for the "sandwich" covariance.

    Args:
        slopes: a game's slope for each outcome. [num_outcomes, num_parameters]
        outcomes: the outcome of each game, as a row of ``slopes``.
        clusters: the cluster of each game.

    Returns:
        [num_parameters, num_parameters]
    """
    rows = {cluster: row for row, cluster in enumerate(dict.fromkeys(clusters))}
    places = [rows[cluster] for cluster in clusters], outcomes
    sums = csr_array((np.ones(len(outcomes)), places), shape=(len(rows), len(slopes))) @ slopes
    spread: Floats = sums.T @ sums * len(rows) / max(len(rows) - 1, 1)
    return spread
