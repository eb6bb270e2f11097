"""The average of several policies, as of a run's snapshots: in self-play it is what comes near an equilibrium."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .information_sets import Floats, GameTree
from .tabulated import reach, renormalised


def average_policy(tree: GameTree, tables: Sequence[Floats], weights: Sequence[float] | None = None) -> Floats:
    """The policy that plays as one of several, drawn anew for each game: of snapshots, the average policy of a run.

    At an information set each counts by the probability of its own actions on the way there; where none of them ever
    comes, all alike. Illegal answers are left out before (renormalised).

    Raises:
        ValueError: no tables, weights that are none; or a game that merges positions, where what a player did before
            cannot be told from the information set.
    """
    if not tree.is_tree:
        raise ValueError(f"{tree.game_id}: policies can be averaged only where every position has one history")
    shares = np.ones(len(tables)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not tables or len(shares) != len(tables) or shares.min() < 0 or shares.sum() <= 0:
        raise ValueError(f"{len(tables)} tables with weights {weights}: each needs a weight of at least 0, not all 0")
    total, plain = np.zeros(tree.legal.shape), np.zeros(tree.legal.shape)
    moving = tree.players >= 0
    for table, share in zip(tables, shares / shares.sum(), strict=True):
        table = renormalised(tree, table)
        own = np.zeros(len(tree.owners))
        for player in (0, 1):
            # The same at all nodes of an information set: a player's own actions are known to it.
            nodes = np.flatnonzero(moving & (tree.players == player))
            own[tree.rows[nodes]] = reach(tree, table, players=(player,), chance=False)[nodes]
        total += share * own[:, None] * table
        plain += share * table
    return renormalised(tree, np.where(total.sum(axis=1, keepdims=True) > 0, total, plain))
