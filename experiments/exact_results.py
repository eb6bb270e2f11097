"""How a policy fares against random and perfect play in a game where nothing is hidden: computed, not sampled."""

from __future__ import annotations

from recipe.spiral.evaluation.exploitability.information_sets import Floats, GameTree
from recipe.spiral.evaluation.exploitability.optimality import optimal
from recipe.spiral.evaluation.exploitability.tabulated import expected_results, uniform
from recipe.spiral.evaluation.report.points import OUTCOMES


def against_both(tree: GameTree, table: Floats) -> dict[str, float]:
    """How games end in both roles, by the names that ``evaluation.points`` has for sampled ones.

    Args:
        tree: of a game where nothing is hidden.
        table: the policy. [num_information_sets, most_actions]
    """
    best = optimal(tree)
    found: dict[str, float] = {}
    for opponent, other in (("random", uniform(tree)), ("perfect", best / best.sum(axis=1, keepdims=True))):
        for role, (first, second) in enumerate(((table, other), (other, table))):
            results = expected_results(tree.game_id, first, second)
            ends = (results.win, results.draw, results.loss)[:: -1 if role else 1]
            place = f"{tree.game_id}, player {role}, {opponent}"
            shares = (*ends, results.illegal[role])
            found |= {f"{place}: {outcome}": share for outcome, share in zip(OUTCOMES, shares, strict=True)}
    return found
