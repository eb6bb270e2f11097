"""Davidson's model of paired comparisons with ties and an advantage of the first player, fitted to games.

R. R. Davidson, JASA 65 (1970); with the order's effect, Davidson and Beaver, Biometrics 33 (1977). Player 0 is stronger
than player 1 by ``d``, the difference of their strengths plus the game's first-player advantage; then, with the game's
inclination ``t`` to draws::

    P(player 0 wins) : P(draw) : P(player 1 wins)  =  exp(d/2) : exp(t) : exp(-d/2)

Without draws this is Bradley and Terry's model. Counting draws as half wins there would be the other way, but a half is
no outcome of that model: its intervals would be too wide, the more so the more draws a game has. Here, too, a draw
counts for a player's strength what half a win does (points are the sufficient statistic), and how often there are draws
is the game's affair.

The log-likelihood is concave. Each parameter has a normal prior round 0, so that all are finite whatever was played.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .game_results import Meeting

Floats = NDArray[np.float64]
#: One point of log-odds (base e) in Elo: 400 points are odds of 10 to 1.
ELO = 400 / math.log(10)
#: The standard deviation of the prior of each strength, first-player advantage and inclination to draws: 800 Elo, so
#: that a few dozen games outweigh it.
PRIOR = 800 / ELO
#: d is worth this to each outcome, and so is t.
_OF_D = np.array([0.5, 0.0, -0.5])
_OF_T = np.array([0.0, 1.0, 0.0])
_PLACES = {"win": 0, "draw": 1, "loss": 2}
#: Clusters that are summed up at once, against memory.
_CHUNK = 16384


@dataclass
class Fit:
    """The model fitted to games.

    Attributes:
        strengths: how many of the parameters are strengths; then come the games' advantages, then inclinations.
        games: their ids, sorted.
        values: [parameters]: the mode of the posterior.
        model_covariance: [parameters, parameters]: from the curvature there.
        cluster_covariance: the same from how much games of different chance differ ("sandwich"); None: not asked for.
        log_likelihood: at the mode, without the prior.
    """

    strengths: int
    games: list[str]
    values: Floats
    model_covariance: Floats
    cluster_covariance: Floats | None
    log_likelihood: float

    def error(self, contrast: Floats) -> float:
        """The standard error of ``contrast @ values``, the larger of both.

        The curvature knows how little is known of somebody who never lost, where results do not vary at all. The
        clusters know that games with the same chance, and games of different kinds, say less than as many others.
        """
        variances = [contrast @ self.model_covariance @ contrast]
        if self.cluster_covariance is not None:
            variances.append(contrast @ self.cluster_covariance @ contrast)
        return float(np.sqrt(max(0.0, *map(float, variances))))


def fit(
    played: Sequence[Meeting],
    strengths: int,
    places: Callable[[Meeting], tuple[tuple[int, float], ...]],
    clusters: bool = True,
) -> Fit:
    """Fit strengths, advantages and inclinations to games.

    Args:
        played: the games.
        strengths: how many there are.
        places: of a game, what of them makes player 0 stronger: (which, how much of it); the same for equal players.
        clusters: whether to compute ``cluster_covariance``.
    """
    played = sorted(played)  # to the last digit the same, in whatever order games come
    games = sorted({meeting.game for meeting in played})
    game_place = {game: place for place, game in enumerate(games)}
    rows: dict[tuple[str, str, str], int] = {}
    for meeting in played:
        rows.setdefault(meeting[:3], len(rows))
    of_d = np.zeros((len(rows), strengths + 2 * len(games)))
    of_t = np.zeros_like(of_d)
    counts = np.zeros((len(rows), 3))
    for meeting in played:
        row = rows[meeting[:3]]
        if not counts[row].any():
            for place, much in places(meeting):
                of_d[row, place] += much
            of_d[row, strengths + game_place[meeting.game]] = 1.0
            of_t[row, strengths + len(games) + game_place[meeting.game]] = 1.0
        counts[row, _PLACES[meeting.outcome]] += 1
    values = _mode(of_d, of_t, counts)
    outcomes, log_outcomes = _chances(of_d @ values, of_t @ values)
    covariance = np.asarray(np.linalg.inv(_curvature(of_d, of_t, counts, outcomes)), dtype=np.float64)
    cluster = None
    if clusters:
        scores = _scores(of_d, of_t, outcomes)
        endings = np.array([3 * rows[meeting[:3]] + _PLACES[meeting.outcome] for meeting in played], dtype=np.int64)
        cluster = covariance @ _spread(scores, endings, [meeting.chance for meeting in played]) @ covariance
    return Fit(strengths, games, values, covariance, cluster, float((counts * log_outcomes).sum()))


def chances(d: float, t: float) -> tuple[float, float, float]:
    """The probabilities that player 0 wins, of a draw, and that it loses."""
    win, draw, loss = _chances(np.array([d]), np.array([t]))[0][0].tolist()
    return win, draw, loss


def _chances(d: Floats, t: Floats) -> tuple[Floats, Floats]:
    """[cells, 3]: the outcomes' probabilities, and their logarithms."""
    logits = np.outer(d, _OF_D) + np.outer(t, _OF_T)
    logits -= logits.max(axis=1, keepdims=True)
    logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return np.exp(logs), logs


def _mode(of_d: Floats, of_t: Floats, counts: Floats) -> Floats:
    """The posterior's, by Newton's method: what it climbs is concave, and steps that overshoot are halved."""

    def height(at: Floats) -> float:
        return float((counts * _chances(of_d @ at, of_t @ at)[1]).sum() - at @ at / (2 * PRIOR**2))

    values = np.zeros(of_d.shape[1])
    now = height(values)
    for _ in range(100):
        outcomes, _ = _chances(of_d @ values, of_t @ values)
        rest = counts - counts.sum(axis=1, keepdims=True) * outcomes
        slope = of_d.T @ (rest @ _OF_D) + of_t.T @ (rest @ _OF_T) - values / PRIOR**2
        step = np.linalg.solve(_curvature(of_d, of_t, counts, outcomes), slope)
        gain = float(slope @ step)  # twice what is left to climb, were it a parabola
        if gain < 1e-12:
            return values
        while height(values + step) < now - 1e-9 * abs(now):
            step = step / 2
        values = values + step
        now = height(values)
    raise RuntimeError("the ratings' fit does not come to an end")


def _curvature(of_d: Floats, of_t: Floats, counts: Floats, outcomes: Floats) -> Floats:
    """The negative Hessian of the log posterior: the information of the games, and the prior's."""
    games = counts.sum(axis=1)
    mean_d, mean_t = outcomes @ _OF_D, outcomes @ _OF_T
    dd = games * (outcomes @ _OF_D**2 - mean_d**2)
    dt = games * (-mean_d * mean_t)  # no outcome has both
    tt = games * (mean_t - mean_t**2)
    mixed = (of_d.T * dt) @ of_t
    return (of_d.T * dd) @ of_d + mixed + mixed.T + (of_t.T * tt) @ of_t + np.eye(of_d.shape[1]) / PRIOR**2


def _scores(of_d: Floats, of_t: Floats, outcomes: Floats) -> Floats:
    """[3 * cells, parameters]: the slope of one game's log-likelihood, for each way in which it may end."""
    surprise_d = _OF_D - (outcomes @ _OF_D)[:, None]
    surprise_t = _OF_T - (outcomes @ _OF_T)[:, None]
    scores = surprise_d[:, :, None] * of_d[:, None, :] + surprise_t[:, :, None] * of_t[:, None, :]
    flat: Floats = scores.reshape(-1, of_d.shape[1])
    return flat


def _spread(scores: Floats, outcomes: NDArray[np.int64], chance: Sequence[tuple[int, int]]) -> Floats:
    """The sum over clusters, games with the same chance, of the outer product of their summed scores."""
    numbers = {key: number for number, key in enumerate(sorted(set(chance)))}
    cluster = np.array([numbers[key] for key in chance])
    order = np.argsort(cluster, kind="stable")
    starts = np.searchsorted(cluster[order], np.arange(len(numbers) + 1))
    total = np.zeros((scores.shape[1], scores.shape[1]))
    for begin in range(0, len(numbers), _CHUNK):
        end = min(begin + _CHUNK, len(numbers))
        games = scores[outcomes[order[starts[begin] : starts[end]]]]
        sums = np.add.reduceat(games, starts[begin:end] - starts[begin], axis=0)
        total += sums.T @ sums
    return total * len(numbers) / max(len(numbers) - 1, 1)
