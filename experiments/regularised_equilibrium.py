"""Computes where self-play ends when a KL loss pulls the policy to a fixed start; it is no equilibrium of the game.

At rest, the gain of an action over the others balances the pull to the start. verl's estimators ``k2`` and those with a
``+`` have the gradient of KL(policy || start). For them the balance is ``p(a) ~ start(a) exp(q(a) / coefficient)``, a
logit equilibrium (McKelvey and Palfrey 1998). ``low_var_kl`` (``k3``) without a ``+`` has the gradient of
KL(start || policy). For it the balance is ``p(a) = coefficient start(a) / (mu - q(a))``, which leaves bad actions much
more probability. Where ``start(a) / p(a)`` is so large that verl clamps the estimate, nothing pulls the action back,
and the policy gives it up.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats, GameTree, game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.exploitability.optimality import exact_results
from recipe.spiral.lab.evaluation.exploitability.tabulated import layer_values, reach, uniform
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV
from recipe.spiral.match import Rules
from recipe.spiral.rollouts.schedule import parse_games

#: From (start, action values, coefficient) to the policy that balances them.
Answer = Callable[[Floats, Floats, float], Floats]
#: verl's names of the estimators with the gradient of KL(policy || start), and of those with KL(start || policy)'s.
REVERSE = ("k2", "mse", "k1+", "kl+", "k2+", "mse+", "k3+", "low_var_kl+", "abs+")
FORWARD = ("k3", "low_var_kl")
#: verl clamps ``low_var_kl`` where start(a) / p(a) is above this: exp(x) - x - 1 is 10 where exp(x) is this number.
CLAMPED = 13.6109
#: The iteration ends where policy and answer differ by less than this, and gives up after so many steps.
CLOSE, STEPS = 1e-3, 12_000
#: In these games the answers differ in one token only, so the loss, which is per token, is per action.
ONE_TOKEN = ("KuhnPoker", "TicTacToe")
#: Embedded models that play nearly uniformly at the start.
UNIFORM = ("tiny", "tiny_lines")
#: Settings that also decide where a run ends, and the values that this computation assumes.
PLAIN = {
    "fsp.enabled": False,
    "opponents": [],
    "ref_update_freq": None,
    "actor_rollout_ref.actor.use_kl_loss": True,
    "actor_rollout_ref.actor.entropy_coeff": 0.0,
    "actor_rollout_ref.rollout.temperature": 1.0,
    "algorithm.adv_estimator": "rae",
    "algorithm.gamma": 1.0,
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_zero_advantages": False,
    "algorithm.filter_draws": False,
}


def measures_at_rest(config: Any) -> dict[str, float]:
    """What would be measured at rest of a run whose KL loss pulls it to the tiny model of the start.

    Args:
        config: of ``main_spiral``.

    Returns:
        NashConv where something is hidden, otherwise how games against random and perfect play end, by the names of
        ``outputs.points``. Empty where a setting differs from ``PLAIN``, or the game is not in ``ONE_TOKEN``.
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
    return {NASH_CONV: nash_conv(tree, table)} if tree.is_tree else exact_results(tree, table)


@cache
def at_rest(tree: GameTree, coefficient: float, kl_type: str) -> Floats | None:
    """The policy at which self-play rests when a KL loss pulls it to uniform play. [num_information_sets, most_actions]

    It is computed once, because many arms and seeds of an experiment have the same pull, and cannot be written to.

    Args:
        tree: a game in which a player remembers all its actions (``is_tree``), or in which nothing is hidden.
        coefficient: of the loss, in rewards.
        kl_type: verl's name of the estimator.

    Returns:
        None where the iteration did not converge (coefficients below 0.02 in Kuhn poker), and for an estimator whose
        gradient pulls to nothing (``k1``) or not to the start (``abs``).

    Raises:
        ValueError: the coefficient is not above 0.
    """
    if coefficient <= 0:
        raise ValueError(f"coefficient={coefficient}: must be above 0")
    if kl_type not in REVERSE + FORWARD:
        return None
    answer: Answer = _logit if kl_type in REVERSE else _reciprocal
    start = uniform(tree)
    found = (_repeatedly if tree.is_tree else _backwards)(tree, answer, start, coefficient)
    if found is not None:
        found.flags.writeable = False
    return found


def _repeatedly(tree: GameTree, answer: Answer, start: Floats, coefficient: float) -> Floats | None:
    """Go from the start towards the answer to the present policy until both are close; None: they never are."""
    table, rate = start.copy(), min(0.05, coefficient / 2)  # with longer steps the iteration cycles
    for _ in range(STEPS):
        balanced = answer(start, action_values(tree, table), coefficient)
        if np.abs(balanced - table).max() < CLOSE:
            return balanced
        table += rate * (balanced - table)
    return None


def _backwards(tree: GameTree, answer: Answer, start: Floats, coefficient: float) -> Floats:
    """Where nothing is hidden the value of a move does not depend on earlier play, so one backward pass is enough."""
    table, values = start.copy(), tree.rewards.copy()  # of player 0
    for layer in tree.layers:
        sign = np.where(tree.players[layer] == 0, 1.0, -1.0)[:, None]
        children, rows = tree.children[layer], tree.rows[layer]
        actions = np.where(children >= 0, sign * values[children], -np.inf)
        table[rows] = answer(start[rows], actions, coefficient)
        values[layer] = sign[:, 0] * (table[rows] * np.where(children >= 0, actions, 0.0)).sum(axis=1)
    return table


def action_values(tree: GameTree, table: Floats) -> Floats:
    """The expected reward of each action at each information set, for the player to move; -inf for illegal actions.

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
    expected: Floats = np.where(tree.legal, total / np.maximum(weight, 1e-300)[:, None], -np.inf)
    return expected


def _logit(start: Floats, values: Floats, coefficient: float) -> Floats:
    raised: Floats = start * np.exp((values - values.max(axis=1, keepdims=True)) / coefficient)
    return raised / raised.sum(axis=1, keepdims=True)


def _reciprocal(start: Floats, values: Floats, coefficient: float) -> Floats:
    table = _pulled(start, values, coefficient)
    return _pulled(np.where(table * CLAMPED >= start, start, 0.0), values, coefficient)


def _pulled(start: Floats, values: Floats, coefficient: float) -> Floats:
    """coefficient start / (mu - values) for the actions with a start above 0; mu is such that each row sums to 1."""
    worth = np.where(start > 0, values, -np.inf)  # so others get a probability of 0
    low = worth.max(axis=1, keepdims=True)
    high = low + coefficient  # with this mu the sum is at most 1
    pull = coefficient * start
    for _ in range(50):
        middle = (low + high) / 2
        above = (pull / (middle - worth)).sum(axis=1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    table = pull / (high - worth)
    return table / table.sum(axis=1, keepdims=True)
