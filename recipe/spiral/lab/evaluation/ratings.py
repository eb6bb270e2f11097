"""Ratings: every player's strength with its interval, the advantage of playing first in each game, and who beats whom.

The model is Davidson's, of paired comparisons with draws and an advantage of the first player (R. R. Davidson, JASA 65,
1970; with the order's effect, Davidson and Beaver, Biometrics 33, 1977). Let ``d`` be how much stronger player 0 is
than player 1: the difference of their strengths plus the game's first-player advantage. Let ``t`` be the game's
tendency to draws. Then::

    P(player 0 wins) : P(draw) : P(player 1 wins)  =  exp(d/2) : exp(t) : exp(-d/2)

Without draws this is the model of Bradley and Terry. Counting draws as half wins in that model would make its intervals
too wide, because half a win is no outcome there. Here, too, a draw counts for a player's strength as half a win does.

400 points of Elo are odds of 10 to 1 of winning to losing, draws aside. Each parameter has a normal prior with mean 0:
a player that won all its games, or never met the others, has a finite rating with a wide interval. Intervals take games
for independent, also where they share their randomness.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from ...training.metrics import Z, wilson

Floats = NDArray[np.float64]
#: A part of ``results.json``, which says what is in it.
Row = dict[str, Any]
#: By the names of players 0 and 1 and the game: how many games player 0 won, drew and lost.
Outcomes = Mapping[tuple[str, str, str], tuple[int, int, int]]
#: Elo points for one unit of log-odds (base e).
ELO = 400 / math.log(10)
#: The standard deviation of the prior of each strength, first-player advantage and tendency to draws: 800 Elo. A few
#: dozen games outweigh it.
PRIOR = 800 / ELO
#: The scope of ratings over all games together.
ALL = "all games"
#: What is to be said beside ratings from games whose rewards are chips.
_OF_CHIPS = (
    "Elo says nothing about strength in KuhnPoker: it counts games won, and chips decide. A player that always bets "
    "and calls wins more games than an equilibrium does. NashConv says how strong a policy is."
)


def rate_all(outcomes: Outcomes, anchor: str | None = None) -> list[Row]:
    """Ratings over all games, if there are several, and for each game; of two players, the results say everything."""
    games = _games(outcomes)
    scopes: dict[str, Outcomes] = {ALL: outcomes} if len(games) > 1 else {}
    scopes |= {game: {cell: counts for cell, counts in outcomes.items() if cell[2] == game} for game in games}
    return [rate(scope, of_scope, anchor) for scope, of_scope in scopes.items() if len(_names(of_scope)) > 2]


def rate(scope: str, outcomes: Outcomes, anchor: str | None = None) -> Row:
    """Everybody's ratings from games, of which there must be some. ``anchor`` is whose rating is 0; without one, or if
    it did not play these games, the mean of all is 0."""
    names, games, pairs = _names(outcomes), _games(outcomes), head_to_head(outcomes)
    values, covariance = fit(outcomes)

    def estimate(contrast: Floats) -> Row:
        value = ELO * float(contrast @ values)
        half = Z * ELO * math.sqrt(max(0.0, float(contrast @ covariance @ contrast)))
        return {"elo": value, "low": value - half, "high": value + half}

    anchor = anchor if anchor in names else None
    units = np.eye(len(values))
    origin = np.mean([units[names.index(name)] for name in (names if anchor is None else [anchor])], axis=0)
    players = []
    for name, unit in zip(names, units, strict=False):
        met = [pair for pair in pairs if pair["name"] == name]
        points = sum((pair["wins"] + pair["draws"] / 2 for pair in met), 0.0)
        played = {"games": sum(pair["games"] for pair in met), "points": points}
        players.append({"name": name, **estimate(unit - origin), **played})
    terms = [
        {
            "game": game,
            "first_player": estimate(units[len(names) + place]),
            # The probability of a draw between equals is exp(t) / (exp(t) + 2).
            "draws": float(expit(values[len(names) + len(games) + place] - math.log(2))),
            "games": sum(sum(counts) for cell, counts in outcomes.items() if cell[2] == game),
        }
        for place, game in enumerate(games)
    ]
    return {
        "scope": scope,
        "note": _OF_CHIPS if "KuhnPoker" in games else "",
        "anchor": anchor,
        "players": sorted(players, key=lambda player: (-player["elo"], player["name"])),
        "games": terms,
        "head_to_head": pairs,
    }


def fit(outcomes: Outcomes) -> tuple[Floats, Floats]:
    """Fit strengths, advantages and tendencies to draws. A player's games against itself only tell of the game.

    Returns:
        The mode of the posterior: the players' strengths, the games' advantages, then their tendencies to draws, each
        by name [num_parameters]; and its covariance from the curvature at the mode [num_parameters, num_parameters].
    """
    cells = sorted(outcomes)  # the result does not depend on the order of games, not even in the last digit
    names, games = _names(outcomes), _games(outcomes)
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
            return values, np.linalg.inv(curvature).astype(np.float64)
        values = values + step


def head_to_head(outcomes: Outcomes) -> list[Row]:
    """Who beats whom: all pairs of players that met, each from both sides, sorted by their two names. The score is the
    share of the points; its interval is rather too wide if there are draws."""
    counts: dict[tuple[str, str], Floats] = {}
    for (first, second, _), ended in outcomes.items():
        if first != second:
            for pair, of_first in (((first, second), ended), ((second, first), ended[::-1])):
                counts[pair] = counts.get(pair, np.zeros(3)) + of_first
    rows = []
    for (name, other), counted in sorted(counts.items()):
        wins, draws, losses = map(int, counted)
        points, games = wins + draws / 2, wins + draws + losses
        low, high = wilson(points, games)
        row = {"name": name, "other": other, "wins": wins, "draws": draws, "losses": losses, "games": games}
        rows.append({**row, "score": points / games, "low": low, "high": high})
    return rows


def _names(outcomes: Outcomes) -> list[str]:
    return sorted({name for cell in outcomes for name in cell[:2]})


def _games(outcomes: Outcomes) -> list[str]:
    return sorted({cell[2] for cell in outcomes})
