"""Policies as tables, and exactly what comes of them: nothing is sampled.

A table has a row for each information set of a ``GameTree`` and a column for each of its actions: the probability of
answering with that action. Rows belong to one player each, so one table holds how both play. What a row lacks to 1 is
the probability of an answer that is no legal action, which ends the game as in a match (``Rules.illegal_rewards``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..match import Rules
from .information_sets import Floats, GameTree, Indices, InformationSet, game_tree

#: The probabilities of the actions at an information set; actions that it leaves out have none.
Strategy = Callable[[InformationSet], Mapping[str, float]]
#: Rows may exceed 1 by this much, for log-probabilities of half-precision models; it is taken off again.
SLACK = 1e-3


@dataclass(frozen=True)
class Results:
    """How a game ends, as shares of all games: they sum to 1.

    Attributes:
        win, draw, loss: of player 0. A game that an illegal answer ended is lost for whoever gave it.
        illegal: the games that player 0 and player 1 ended so; they are among the wins and losses.
        rewards: the mean outcomes of players 0 and 1, in rewards.
    """

    win: float
    draw: float
    loss: float
    illegal: tuple[float, float]
    rewards: tuple[float, float]


def tabulate(tree: GameTree, strategy: Strategy) -> Floats:
    """A strategy as a table. [num_information_sets, most_actions]

    Raises:
        ValueError: it gives something to an action that is not legal, or its probabilities are none.
    """
    table = np.zeros(tree.legal.shape)
    for row, information_set in enumerate(tree.information_sets):
        for action, probability in strategy(information_set).items():
            if action not in information_set.actions:
                raise ValueError(
                    f"{action} is not legal in {tree.game_id} after {information_set.history}: one of "
                    f"{', '.join(information_set.actions)}"
                )
            table[row, information_set.actions.index(action)] = probability
    return checked(tree, table)


def uniform(tree: GameTree) -> Floats:
    """Every legal action as likely as the others."""
    table: Floats = tree.legal / tree.legal.sum(axis=1, keepdims=True)
    return table


def checked(tree: GameTree, table: Floats) -> Floats:
    """A table of probabilities for that tree; rows a little above 1 are scaled to 1.

    Raises:
        ValueError: another shape; negative or no numbers; rows above 1; or something on what is no action.
    """
    if table.shape != tree.legal.shape:
        raise ValueError(f"{tree.game_id}: a table of shape {table.shape}, not {tree.legal.shape}")
    if not np.all(np.isfinite(table)) or table.min() < 0 or np.any(table[~tree.legal]):
        raise ValueError(f"{tree.game_id}: a policy's table must hold probabilities, and 0 where there is no action")
    sums = table.sum(axis=1, keepdims=True)
    if sums.max() > 1 + SLACK:
        raise ValueError(
            f"{tree.game_id}: the probabilities of the actions sum to {sums.max():.4f} at information set "
            f"{int(sums.argmax())}; more than 1 means that two of them are the same answer, or that they are no "
            "probabilities of whole answers"
        )
    scaled: Floats = table / np.maximum(sums, 1)
    return scaled


def renormalised(tree: GameTree, table: Floats) -> Floats:
    """The policy given that its answers are legal; where none ever is, uniform."""
    sums = table.sum(axis=1, keepdims=True)
    scaled: Floats = np.where(sums > 0, table / np.where(sums > 0, sums, 1), uniform(tree))
    return scaled


def together(tree: GameTree, first: Floats, second: Floats) -> Floats:
    """The table in which player 0 plays as in ``first`` and player 1 as in ``second``."""
    table: Floats = np.where(tree.owners[:, None] == 0, first, second)
    return table


def reach(tree: GameTree, table: Floats, players: Sequence[int] = (0, 1), chance: bool = True) -> Floats:
    """The probability of coming to each node. [num_nodes]

    Args:
        players: whose probabilities count; the others' are taken as 1. With one player and a game that merges
            positions, it is the sum over the ways to the node.
        chance: whether the deals' count.
    """
    reached = np.zeros(len(tree.players))
    reached[tree.roots] = 1 / len(tree.roots) if chance else 1.0
    for layer in reversed(tree.layers):
        counts = np.isin(tree.players[layer], players)[:, None]
        onwards = reached[layer, None] * np.where(counts, table[tree.rows[layer]], 1.0)
        there = tree.children[layer] >= 0
        np.add.at(reached, tree.children[layer][there], onwards[there])
    return reached


def layer_values(
    tree: GameTree, table: Floats, values: Floats, layer: Indices, player: int, rules: Rules
) -> tuple[Floats, Floats]:
    """One step backwards for ``player``, from the values of the nodes after a layer.

    Returns:
        What the layer's nodes are worth under the table [nodes], and what each action there leads to, 0 where there is
        none [nodes, most_actions].
    """
    children = tree.children[layer]
    actions = np.where(children >= 0, values[children], 0.0)
    probabilities = table[tree.rows[layer]]
    offender, other = rules.illegal_rewards
    illegal = np.where(tree.players[layer] == player, offender, other)
    return (probabilities * actions).sum(axis=1) + (1 - probabilities.sum(axis=1)) * illegal, actions


def expected_rewards(tree: GameTree, table: Floats, rules: Rules | None = None) -> tuple[float, float]:
    """The mean outcomes of players 0 and 1, in rewards; they sum to 0 where every answer is legal."""
    means = []
    for player in (0, 1):
        values = tree.rewards * (1 if player == 0 else -1)
        for layer in tree.layers:
            values[layer], _ = layer_values(tree, table, values, layer, player, rules or Rules())
        means.append(float(values[tree.roots].mean()))
    return means[0], means[1]


def expected_results(
    game_id: str, first: Floats | None = None, second: Floats | None = None, rules: Rules | None = None
) -> Results:
    """How games between two policies end, by enumeration.

    Args:
        game_id: one of ``ENUMERATED``.
        first, second: the tables of players 0 and 1; None plays uniformly at random.
        rules: what an illegal answer costs; None: the match's defaults.
    """
    tree = game_tree(game_id)
    chance = uniform(tree)
    table = together(tree, chance if first is None else first, chance if second is None else second)
    reached = reach(tree, table)
    over, moving = tree.players < 0, tree.players >= 0
    lacking = np.zeros(len(reached))
    lacking[moving] = np.maximum(1 - table.sum(axis=1), 0)[tree.rows[moving]]
    illegal = [float((reached * lacking)[tree.players == player].sum()) for player in (0, 1)]
    ends = [float(reached[over & (np.sign(tree.rewards) == sign)].sum()) for sign in (1, 0, -1)]
    rewards = expected_rewards(tree, table, rules)
    return Results(ends[0] + illegal[1], ends[1], ends[2] + illegal[0], (illegal[0], illegal[1]), rewards)
