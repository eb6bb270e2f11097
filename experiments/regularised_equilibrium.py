"""Where self-play comes to rest when a KL loss holds the policy to a fixed one: not at an equilibrium of the game.

At rest, what an action gains over the others weighs as much as the pull back. With KL(policy || start), whose gradient
verl's estimators with a ``+`` and ``k2`` have, that is ``p(a) ~ start(a) exp(q(a) / coefficient)``, a logit equilibrium
(McKelvey and Palfrey 1998). The gradient of ``low_var_kl`` (``k3``) without a ``+`` is that of KL(start || policy):
``p(a) = coefficient start(a) / (mu - q(a))``, which leaves bad actions far more; only where ``start(a) / p(a)`` is so
large that verl clamps the estimate there is no pull, and the action is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from experiments.exact_results import against_both
from recipe.spiral.evaluation.exploitability.information_sets import Floats, GameTree, game_tree
from recipe.spiral.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.evaluation.exploitability.tabulated import layer_values, reach, uniform
from recipe.spiral.evaluation.report.points import NASH_CONV
from recipe.spiral.match import Rules
from recipe.spiral.serving.schedule import parse_games

#: From (start, worth, coefficient) to the policy that balances them.
Answer = Callable[[Floats, Floats, float], Floats]
#: verl's names of the estimators with the gradient of KL(policy || start), and of those with KL(start || policy)'s.
REVERSE = ("k2", "mse", "k1+", "kl+", "k2+", "mse+", "k3+", "low_var_kl+", "abs+")
FORWARD = ("k3", "low_var_kl")
#: start(a) / p(a) from which verl clamps ``low_var_kl``: exp(x) - x - 1 is 10 where exp(x) is this.
CLAMPED = 13.6109
#: Until the policy and the answer to it are so close; after so many steps there is no telling.
CLOSE, STEPS = 1e-3, 12_000
#: The games whose answers differ in one token only, so that the loss, which is by tokens, is by actions.
ONE_TOKEN = ("KuhnPoker", "TicTacToe")
#: Models that play nearly uniformly when they are new.
UNIFORM = ("tiny", "tiny_lines")
#: What else decides where a run leads, and what it has to be.
PLAIN = {
    "fsp.enabled": False,
    "opponents": [],
    "ref_update_freq": None,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.entropy_coeff": 0.0,
    "algorithm.adv_estimator": "rae",
    "algorithm.gamma": 1.0,
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_zero_advantages": False,
    "algorithm.filter_draws": False,
}


def measures_at_rest(config: Any) -> dict[str, float]:
    """What would be measured where a run leads whose KL loss holds it to the tiny model of the start.

    Args:
        config: of ``main_spiral``.

    Returns:
        NashConv where something is hidden, otherwise how games against random and perfect play end, by the names of
        ``evaluation.points``. Nothing where something else pulls as well, or the game is not one of ``ONE_TOKEN``.
    """
    actor, games = config.actor_rollout_ref.actor, [share.id for share in parse_games(config.games)]
    if any(OmegaConf.select(config, key) != value for key, value in PLAIN.items()) or len(games) > 1:
        return {}
    if config.embedded_model not in UNIFORM or games[0] not in ONE_TOKEN or actor.kl_loss_coef <= 0:
        return {}
    tree = game_tree(games[0])
    table = at_rest(tree, actor.kl_loss_coef / config.algorithm.reward_scale, str(actor.kl_loss_type))
    if table is None:
        return {}
    return {NASH_CONV: nash_conv(tree, table)} if tree.is_tree else against_both(tree, table)


def at_rest(tree: GameTree, coefficient: float, kl_type: str) -> Floats | None:
    """The policy at which self-play rests that a KL loss holds to uniform play. [num_information_sets, most_actions]

    Args:
        tree: a game in which a player knows all it did before (``is_tree``), or nothing is hidden.
        coefficient: of the loss, in rewards.
        kl_type: verl's name of the estimator.

    Returns:
        None where it was not found (coefficients below 0.02 in Kuhn poker), and for an estimator whose gradient holds
        the policy to nothing (``k1``) or not to this (``abs``).

    Raises:
        ValueError: the coefficient is not above 0.
    """
    if coefficient <= 0:
        raise ValueError(f"coefficient={coefficient}: must be above 0")
    if kl_type not in REVERSE + FORWARD:
        return None
    answer: Answer = _logit if kl_type in REVERSE else _reciprocal
    start = uniform(tree)
    if not tree.is_tree:
        return _backwards(tree, answer, start, coefficient)
    table, rate = start.copy(), min(0.05, coefficient / 2)  # in longer steps it goes round in circles
    for _ in range(STEPS):
        target = answer(start, worth(tree, table), coefficient)
        if np.abs(target - table).max() < CLOSE:
            return target
        table += rate * (target - table)
    return None


def _backwards(tree: GameTree, answer: Answer, start: Floats, coefficient: float) -> Floats:
    """Where nothing is hidden a move's worth does not depend on what was played before, so one pass is enough."""
    table, values = start.copy(), tree.rewards.copy()  # of player 0
    for layer in tree.layers:
        sign = np.where(tree.players[layer] == 0, 1.0, -1.0)[:, None]
        children, rows = tree.children[layer], tree.rows[layer]
        actions = np.where(children >= 0, sign * values[children], -np.inf)
        table[rows] = answer(start[rows], actions, coefficient)
        values[layer] = sign[:, 0] * (table[rows] * np.where(children >= 0, actions, 0.0)).sum(axis=1)
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


def _logit(start: Floats, worth: Floats, coefficient: float) -> Floats:
    raised: Floats = start * np.exp((worth - worth.max(axis=1, keepdims=True)) / coefficient)
    return raised / raised.sum(axis=1, keepdims=True)


def _reciprocal(start: Floats, worth: Floats, coefficient: float) -> Floats:
    found = _held(start, worth, coefficient)
    return _held(np.where(found * CLAMPED >= start, start, 0.0), worth, coefficient)


def _held(start: Floats, worth: Floats, coefficient: float) -> Floats:
    """coefficient start / (mu - worth) for actions that have any of ``start``, with the mu that makes it sum to 1."""
    held = start > 0
    low = np.where(held, worth, -np.inf).max(axis=1, keepdims=True)
    high = low + coefficient  # there the sum is at most 1
    for _ in range(50):
        middle = (low + high) / 2
        above = _over(coefficient * start, middle - worth, held).sum(axis=1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    table = _over(coefficient * start, high - worth, held)
    return table / table.sum(axis=1, keepdims=True)


def _over(above: Floats, below: Floats, where: Any) -> Floats:
    return np.divide(above, below, out=np.zeros_like(above), where=where)
