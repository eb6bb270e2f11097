"""Perfect play as the yardstick where nothing is hidden: how many of a policy's moves keep the position's value.

A move is optimal if it does not make the outcome worse than perfect play would have from there. In a lost position
every move is, so the decisions at which something can be given away are counted apart.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ..games import resolve
from ..records import GameRecord
from .information_sets import Floats, GameTree, Indices, game_tree
from .policy_reading import wilson
from .tabulated import reach, renormalised, together, uniform


@dataclass(frozen=True)
class Optimality:
    """Shares of optimal moves; illegal answers are none.

    Attributes:
        share: over all decisions.
        critical: over the decisions with a legal move that is not optimal; None if there are none.
        decisions: how many there are of each: numbers of different observations, or of turns in records, or, weighted
            by reach, expected turns in a game.
        interval: 95% limits for ``share`` where the policy was sampled; the weights of decisions are taken as known.
    """

    share: float
    critical: float | None
    decisions: tuple[float, float]
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class NotLost:
    """Games against perfect play, counted; ``share`` is that of the games not lost, with limits (Wilson)."""

    win: int
    draw: int
    loss: int
    share: float
    interval: tuple[float, float]


def values(tree: GameTree) -> Floats:
    """Player 0's outcome of every node when both play perfectly. [num_nodes]

    Raises:
        ValueError: something is hidden in the game, so positions have no value of their own.
    """
    if any(found.private is not None for found in tree.information_sets):
        raise ValueError(f"{tree.game_id}: moves are optimal only where nothing is hidden (see exploitability.py)")
    worth = tree.rewards.copy()
    for layer in tree.layers:
        first = (tree.players[layer] == 0)[:, None]
        children = tree.children[layer]
        after = np.where(children >= 0, worth[children], np.where(first, -np.inf, np.inf))
        worth[layer] = np.where(first[:, 0], after.max(axis=1), after.min(axis=1))
    return worth


def optimal(tree: GameTree) -> npt.NDArray[np.bool_]:
    """Which actions keep the value. [num_information_sets, most_actions]"""
    worth = values(tree)
    nodes = np.flatnonzero(tree.players >= 0)
    best = np.zeros(tree.legal.shape, dtype=bool)
    keeps = worth[tree.children[nodes]] == worth[nodes, None]
    best[tree.rows[nodes]] = keeps & (tree.children[nodes] >= 0)
    return best


def over_all_decisions(tree: GameTree, table: Floats, judged: bool = True, counts: Indices | None = None) -> Optimality:
    """The policy's probability of an optimal move, the mean over every decision that legal play can come to.

    A decision is what a player sees: in Nim the same piles are one decision, whoever is to move.

    Args:
        judged: illegal answers are no optimal moves; False: leave them out (renormalised).
        counts: where it was sampled: see ``Reading``.
    """
    seen = {found.observation: row for row, found in enumerate(tree.information_sets)}
    weights = np.zeros(len(tree.information_sets))
    weights[list(seen.values())] = 1.0
    return _weighted(tree, table if judged else renormalised(tree, table), weights, counts)


def against_uniform(tree: GameTree, table: Floats, counts: Indices | None = None) -> Optimality:
    """The same over the policy's decisions as they come in games against uniform play, half of them as either player.

    An illegal answer ends its game, so what would have come after it does not count.
    """
    weights = np.zeros(len(tree.information_sets))
    for player in (0, 1):
        other = uniform(tree)
        profile = together(tree, table, other) if player == 0 else together(tree, other, table)
        nodes = np.flatnonzero(tree.players == player)
        np.add.at(weights, tree.rows[nodes], reach(tree, profile)[nodes] / 2)
    return _weighted(tree, table, weights, counts)


def in_records(records: Iterable[GameRecord], player: str) -> Optimality:
    """The share of optimal moves among the turns of the player of that name, in games of one kind that count.

    Raises:
        ValueError: games of several kinds, or no turn of that player; or a turn that cannot be in its game.
    """
    records = [record for record in records if record.discarded is None]
    names = {resolve(record.game) for record in records}
    if len(names) != 1:
        raise ValueError(f"games of one kind are needed, not of {', '.join(sorted(names)) or 'none'}")
    tree = game_tree(names.pop())
    best = optimal(tree)
    counts: Counter[tuple[bool, bool]] = Counter()
    for turn in (turn for record in records for turn in record.turns if record.players[turn.player] == player):
        row = tree.row_of.get((turn.player, turn.observation))
        if row is None:
            raise ValueError(f"this is not {tree.game_id}, or not as it is now: {turn.observation!r}")
        actions = tree.information_sets[row].actions
        good = turn.verdict == "legal" and bool(best[row, actions.index(turn.action or "")])
        counts[good, bool(np.any(tree.legal[row] & ~best[row]))] += 1
    if not counts:
        raise ValueError(f"no turn of a player named {player!r}")
    critical = counts[True, True] + counts[False, True]
    share = (counts[True, True] + counts[True, False]) / counts.total()
    return Optimality(share, counts[True, True] / critical if critical else None, (counts.total(), critical))


def not_lost(records: Iterable[GameRecord], player: str, confidence: float = 0.95) -> NotLost:
    """How the player of that name fared: against a perfect one every game that is not lost was played without a fault.

    (Or with faults that perfect play, which does not set traps, left unpunished.) Discarded games do not count.

    Raises:
        ValueError: no such game, or that player sits on both sides.
    """
    results: Counter[str] = Counter()
    for record in records:
        if player not in record.players or record.discarded is not None:
            continue
        if record.players[0] == record.players[1]:
            raise ValueError(f"game {record.key}: {player!r} plays both sides")
        results[record.result(record.players.index(player))] += 1
    if not results:
        raise ValueError(f"no game of a player named {player!r}")
    kept, total = results["win"] + results["draw"], results.total()
    low, high = wilson(np.array(kept), np.array(total), confidence)
    return NotLost(results["win"], results["draw"], results["loss"], kept / total, (float(low), float(high)))


def _weighted(tree: GameTree, table: Floats, weights: Floats, counts: Indices | None) -> Optimality:
    best = optimal(tree)
    good = np.where(best, table, 0.0).sum(axis=1)
    careful = np.where(np.any(tree.legal & ~best, axis=1), weights, 0.0)
    share = float((good * weights).sum() / weights.sum())
    return Optimality(
        share,
        float((good * careful).sum() / careful.sum()) if careful.any() else None,
        (float(weights.sum()), float(careful.sum())),
        None if counts is None else _interval(share, np.where(best, counts[:, :-1], 0).sum(axis=1), counts, weights),
    )


def _interval(share: float, good: Indices, counts: Indices, weights: Floats) -> tuple[float, float]:
    """By the normal distribution; half an answer each is added to right and wrong, so that few answers that agree are
    not taken for certainty."""
    totals = counts.sum(axis=1)
    chance = (good + 0.5) / (totals + 1)
    half = 1.96 * float(np.sqrt((weights**2 * chance * (1 - chance) / (totals + 1)).sum())) / float(weights.sum())
    return max(share - half, 0.0), min(share + half, 1.0)
