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
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

Floats = NDArray[np.float64]
#: By the names of players 0 and 1 and the game: how many games player 0 won, drew and lost.
Outcomes = Mapping[tuple[str, str, str], tuple[int, int, int]]
#: Elo points for one unit of log-odds (base e): 400 points are odds of 10 to 1.
ELO = 400 / math.log(10)
#: The standard deviation of the prior of each strength, first-player advantage and tendency to draws: 800 Elo. A few
#: dozen games outweigh it.
PRIOR = 800 / ELO


@dataclass(frozen=True)
class Fit:
    """The model fitted to games.

    Attributes:
        names, games: the players and the games, sorted.
        values: the mode of the posterior: strengths, then the games' advantages, then their tendencies to draws.
            [num_parameters]
        covariance: from the curvature at the mode. [num_parameters, num_parameters]
    """

    names: list[str]
    games: list[str]
    values: Floats
    covariance: Floats

    def error(self, contrast: Floats) -> float:
        """The standard error of ``contrast @ values``."""
        return math.sqrt(max(0.0, float(contrast @ self.covariance @ contrast)))


def fit(outcomes: Outcomes) -> Fit:
    """Fit strengths, advantages and tendencies to draws. A player's games against itself only tell of the game."""
    cells = sorted(outcomes)  # the result does not depend on the order of games, not even in the last digit
    names, games = sorted({name for cell in cells for name in cell[:2]}), sorted({cell[2] for cell in cells})
    # The log-odds of each outcome in each cell, as linear functions of the values.
    design = np.zeros((len(cells), 3, len(names) + 2 * len(games)))
    for row, (first, second, game) in enumerate(cells):
        advantage = len(names) + games.index(game)
        for place, sign in ((names.index(first), 1), (names.index(second), -1), (advantage, 1)):
            design[row, :, place] += 0.5 * sign, 0.0, -0.5 * sign
        design[row, 1, advantage + len(games)] = 1.0
    counts = np.array([outcomes[cell] for cell in cells], dtype=np.float64)
    numbers = counts.sum(axis=1, keepdims=True)

    def log_posterior(values: Floats) -> float:
        return float((counts * log_softmax(design @ values, axis=1)).sum() - values @ values / PRIOR**2 / 2)

    values = np.zeros(design.shape[2])
    # Newton's steps, halved where they overshoot: the log-posterior is strictly concave, so they end at its mode.
    while True:
        shares = softmax(design @ values, axis=1)
        gradient = np.tensordot(counts - numbers * shares, design, axes=2) - values / PRIOR**2
        slopes = design - np.einsum("co,cop->cp", shares, design)[:, None]
        sides = (np.sqrt(numbers * shares)[:, :, None] * slopes).reshape(-1, len(values))
        curvature = sides.T @ sides + np.eye(len(values)) / PRIOR**2
        step = np.linalg.solve(curvature, gradient)
        while log_posterior(values + step) < log_posterior(values) and np.abs(step).max() > 1e-9:
            step = step / 2
        if np.abs(step).max() < 1e-9:
            return Fit(names, games, values, np.linalg.inv(curvature).astype(np.float64))
        values = values + step
