"""Where self-play comes to rest when a KL loss holds the policy to a fixed one: not at an equilibrium of the game.

At rest, what an action gains over the others weighs as much as the pull back. With KL(policy || start), whose gradient
verl's estimators with a ``+`` and ``k2`` have, that is ``p(a) ~ start(a) exp(q(a) / coefficient)``, a logit equilibrium
(McKelvey and Palfrey 1998). The gradient of ``low_var_kl`` (``k3``) without a ``+`` is that of KL(start || policy):
``p(a) = coefficient start(a) / (mu - q(a))``, which leaves bad actions far more. NashConv of the rest is the least that
training with that coefficient can come to, however long it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..evaluation.best_response import nash_conv
from ..evaluation.information_sets import ENUMERATED, Floats, GameTree, game_tree
from ..evaluation.tabulated import layer_values, reach, uniform
from ..match import Rules
from ..schedule import parse_games

#: verl's names of the estimators with the gradient of KL(policy || start), and of those with KL(start || policy)'s.
REVERSE = ("k2", "mse", "k1+", "kl+", "k2+", "mse+", "k3+", "low_var_kl+", "abs+")
FORWARD = ("k3", "low_var_kl")
#: Steps towards the answer to the policy of now; they become shorter, for it not to go round in circles.
STEPS, FIRST, HALVED_AFTER = 4000, 0.05, 2000


def nash_conv_at_rest(config: Any) -> float | None:
    """NashConv of where a run leads whose KL loss holds it to the start, if that plays uniformly.

    Args:
        config: of ``main_spiral``.

    Returns:
        In the literature's unit; None where something else pulls as well, or the game has no tree.
    """
    actor, games = config.actor_rollout_ref.actor, [share.id for share in parse_games(config.games)]
    held = actor.use_kl_loss and not config.ref_update_freq and not config.fsp.enabled and not config.opponents
    if not held or actor.kl_loss_coef <= 0 or actor.entropy_coeff or len(games) > 1 or games[0] not in ENUMERATED:
        return None
    if not (tree := game_tree(games[0])).is_tree:
        return None
    table = at_rest(tree, actor.kl_loss_coef / config.algorithm.reward_scale, str(actor.kl_loss_type))
    return None if table is None else nash_conv(tree, table)


def at_rest(tree: GameTree, coefficient: float, kl_type: str) -> Floats | None:
    """The policy at which self-play rests that a KL loss holds to uniform play. [num_information_sets, most_actions]

    Args:
        tree: a game in which a player knows all it did before (``is_tree``).
        coefficient: of the loss, in rewards.
        kl_type: verl's name of the estimator.

    Returns:
        None for an estimator whose gradient holds the policy to nothing (``k1``), or not to this (``abs``).

    Raises:
        ValueError: the coefficient is not above 0, or the game's positions merge.
    """
    if coefficient <= 0 or not tree.is_tree:
        raise ValueError(
            f"coefficient={coefficient}, {tree.game_id}: must be above 0, and a game without merged positions"
        )
    if kl_type not in REVERSE + FORWARD:
        return None
    answer = _logit if kl_type in REVERSE else _reciprocal
    start = uniform(tree)
    table = start.copy()
    for step in range(STEPS):
        target = answer(tree, start, worth(tree, table), coefficient)
        table += FIRST / (1 + step / HALVED_AFTER) * (target - table)
    return table


def worth(tree: GameTree, table: Floats) -> Floats:
    """What each action of an information set leads to, in its player's rewards; -inf where there is none.

    [num_information_sets, most_actions]
    """
    total = np.zeros(table.shape)
    weight = np.zeros(len(table))
    for player in (0, 1):
        others = reach(tree, table, players=(1 - player,))
        values = tree.rewards * (1 if player == 0 else -1)
        for layer in tree.layers:
            values[layer], actions = layer_values(tree, table, values, layer, player, Rules())
            own = tree.players[layer] == player
            rows, reached = tree.rows[layer][own], others[layer[own]]
            np.add.at(total, rows, reached[:, None] * actions[own])
            np.add.at(weight, rows, reached)
    found: Floats = np.where(tree.legal, total / np.maximum(weight, 1e-300)[:, None], -np.inf)
    return found


def _logit(tree: GameTree, start: Floats, worth: Floats, coefficient: float) -> Floats:
    raised: Floats = start * np.exp((worth - worth.max(axis=1, keepdims=True)) / coefficient)
    return raised / raised.sum(axis=1, keepdims=True)


def _reciprocal(tree: GameTree, start: Floats, worth: Floats, coefficient: float) -> Floats:
    low = worth.max(axis=1, keepdims=True)
    high = low + coefficient  # there the sum is at most 1
    for _ in range(60):
        middle = (low + high) / 2
        above = np.where(tree.legal, coefficient * start / (middle - worth), 0.0).sum(axis=1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    table: Floats = np.where(tree.legal, coefficient * start / (high - worth), 0.0)
    return table / table.sum(axis=1, keepdims=True)
