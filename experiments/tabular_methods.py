"""The methods that an experiment compares, with a table in place of the model and exact gradients in place of games.

What a run of the model does beyond this table is chance in its games and what its weights share. The table's logits
move by the natural gradient: ``logits += rate * (q - coefficient * log(policy / reference))``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from omegaconf import OmegaConf

from experiments.learning_page import REFERENCE
from experiments.quick_methods import Methods, falling
from experiments.quick_update import rate
from experiments.regularised_equilibrium import PLAIN, REVERSE
from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats, GameTree, game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.exploitability.tabulated import reach, uniform
from recipe.spiral.lab.evaluation.outputs.points import NASH_CONV
from recipe.spiral.rollouts.schedule import parse_games

#: The step size at the first step; it falls as the config's learning rate does.
STEP = 1.0


def at_the_end(config: Any) -> dict[str, float]:
    """NashConv of the policy and of the reference after as many steps as the config has, from uniform play, by the
    names of result files. Empty: the game hides nothing, or a setting of the config has no counterpart here."""
    games, actor = [share.id for share in parse_games(config.games)], config.actor_rollout_ref.actor
    others = {key: value for key, value in PLAIN.items() if key != "ref_update_freq"}
    if any(OmegaConf.select(config, key) != value for key, value in others.items()) or len(games) > 1:
        return {}
    if actor.kl_loss_type not in REVERSE or not (tree := game_tree(games[0])).is_tree:
        return {}
    names = (NASH_CONV, REFERENCE)
    return {name: nash_conv(tree, table) for name, table in zip(names, train(tree, config), strict=True)}


def train(tree: GameTree, config: Any) -> tuple[Floats, Floats]:
    """The policy and the reference after training as the config says. Both [num_information_sets, most_actions]"""
    methods, actor = Methods.from_config(config), config.actor_rollout_ref.actor
    steps, every = int(config.trainer.total_training_steps), config.ref_update_freq
    falls = rate(actor.optim, steps)
    # a loss stands beside R - b times the scale; what is a part of the rewards is multiplied by it, too
    scale = 1.0 if methods.regularise == "rewards" else float(config.algorithm.reward_scale)
    policy = uniform(tree)
    reference = before = policy
    copied = 0
    for step in range(steps):
        coefficient = falling(float(actor.kl_loss_coef), methods.kl_end, step / steps) / scale
        new = min(1.0, 2 * (step - copied) / every) if methods.regularise == "rewards" and every else 1.0
        pull = coefficient * (_log(policy) - new * _log(reference) - (1 - new) * _log(before))
        if methods.regularise == "rewards":
            gain = action_values(tree, policy, pull)
        else:
            gain = action_values(tree, policy, np.zeros_like(pull)) - pull
        policy = _softmax(tree, _log(policy) + STEP * falls(step) * gain)
        if every and (step + 1) % every == 0:
            before, copied = reference, step + 1
            reference = reference + config.ref_update_rate * (policy - reference)
    return policy, reference


def action_values(tree: GameTree, table: Floats, paid: Floats) -> Floats:
    """What the player to move expects after each action, at each information set.

    Args:
        paid: what a player pays the other one for an action, there and at all later turns.
            [num_information_sets, most_actions]
    """
    total, weight = np.zeros(table.shape), np.zeros(len(table))
    others = [reach(tree, table, players=(1 - player,)) for player in (0, 1)]
    values = tree.rewards.copy()  # of player 0
    for layer in tree.layers:
        children, rows, players = tree.children[layer], tree.rows[layer], tree.players[layer]
        sign = np.where(players == 0, 1.0, -1.0)[:, None]
        actions = np.where(children >= 0, sign * values[children] - paid[rows], 0.0)
        values[layer] = sign[:, 0] * (table[rows] * actions).sum(axis=1)
        reached = np.where(players == 0, others[0][layer], others[1][layer])
        np.add.at(total, rows, reached[:, None] * actions)
        np.add.at(weight, rows, reached)
    found: Floats = np.where(tree.legal, total / np.maximum(weight, 1e-300)[:, None], 0.0)
    return found


def _log(table: Floats) -> Floats:
    return np.log(np.maximum(table, 1e-300))


def _softmax(tree: GameTree, logits: Floats) -> Floats:
    shifted = np.where(tree.legal, logits, -np.inf)
    raised: Floats = np.exp(shifted - shifted.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)
