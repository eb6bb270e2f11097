"""What the best answer to a policy gets, over our own trees.

OpenSpiel says the same where both can be asked (``openspiel.py``). This one also takes policies whose answers may be
illegal, which is not zero-sum, and is fast enough to be asked a thousand times for an interval.
"""

from __future__ import annotations

import numpy as np

from ..match import Rules
from .information_sets import Floats, GameTree
from .tabulated import expected_rewards, layer_values, reach, renormalised


def best_response(tree: GameTree, table: Floats, player: int, rules: Rules | None = None) -> tuple[float, Floats]:
    """The best that ``player`` can do against how the other plays in ``table``.

    Returns:
        Its mean outcome, in rewards, and a table in which it plays so (certain actions) and the other as in ``table``.
    """
    rules = rules or Rules()
    others = reach(tree, table, players=(1 - player,))  # how likely each node is if the player makes for it
    values = tree.rewards * (1 if player == 0 else -1)
    best = table.copy()
    for layer in tree.layers:
        values[layer], actions = layer_values(tree, table, values, layer, player, rules)
        own = tree.players[layer] == player
        if not own.any():
            continue
        rows, nodes, actions = tree.rows[layer][own], layer[own], actions[own]
        sets, index = np.unique(rows, return_inverse=True)
        worth = np.zeros((len(sets), actions.shape[1]))
        np.add.at(worth, index, others[nodes, None] * actions)
        worth[~tree.legal[sets]] = -np.inf
        choice = worth.argmax(axis=1)
        best[sets] = 0.0
        best[sets, choice] = 1.0
        values[nodes] = actions[np.arange(len(nodes)), choice[index]]
    return float(values[tree.roots].mean()), best


def improvements(tree: GameTree, table: Floats, rules: Rules | None = None) -> tuple[float, float]:
    """What players 0 and 1 would each gain by answering best to the other, in rewards: not below 0, but for rounding.

    Answers that are illegal with some probability count as they are judged.
    """
    plays = expected_rewards(tree, table, rules)
    gains = [best_response(tree, table, player, rules)[0] - plays[player] for player in (0, 1)]
    return gains[0], gains[1]


def nash_conv(tree: GameTree, table: Floats) -> float:
    """NashConv of the policy given that its answers are legal, in the literature's unit; 0 is an equilibrium."""
    return tree.unit * sum(improvements(tree, renormalised(tree, table)))
