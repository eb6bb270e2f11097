"""What the pages say of Kuhn poker: NashConv of simple policies, and why win shares do not measure strength."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.learning_page import LANDMARKS
from recipe.spiral.evaluation.exploitability.best_response import nash_conv
from recipe.spiral.evaluation.exploitability.equilibrium import kuhn_poker
from recipe.spiral.evaluation.exploitability.information_sets import Floats, GameTree, game_tree
from recipe.spiral.evaluation.exploitability.tabulated import expected_results, uniform


@pytest.fixture(scope="module")
def tree() -> GameTree:
    return game_tree("KuhnPoker")


def always(tree: GameTree, *actions: str) -> Floats:
    """The policy that takes the first of these actions that is legal."""
    table = np.zeros_like(uniform(tree))
    for row, state in enumerate(tree.information_sets):
        table[row, state.actions.index(next(action for action in actions if action in state.actions))] = 1.0
    return table


def won_against_random_play(tree: GameTree, table: Floats) -> tuple[float, float]:
    """The shares of games won as player 0 and as player 1."""
    first = expected_results(tree.game_id, table, uniform(tree))
    second = expected_results(tree.game_id, uniform(tree), table)
    return first.win, second.loss


def test_always_betting_and_calling_wins_many_games_and_is_far_from_an_equilibrium(tree: GameTree) -> None:
    table = always(tree, "[bet]", "[call]")
    assert won_against_random_play(tree, table) == pytest.approx((0.75, 0.625))
    assert nash_conv(tree, table) == pytest.approx(LANDMARKS["never folds: least"])
    assert nash_conv(tree, uniform(tree)) == pytest.approx(LANDMARKS["uniform play"])


def test_an_equilibrium_wins_fewer_games(tree: GameTree) -> None:
    shares = [won_against_random_play(tree, kuhn_poker(alpha)) for alpha in (0.0, 1 / 3)]
    assert [first for first, _ in shares] == pytest.approx([0.444, 0.528], abs=1e-3)
    assert [second for _, second in shares] == pytest.approx([0.472, 0.472], abs=1e-3)
    assert nash_conv(tree, kuhn_poker(0.0)) == pytest.approx(0.0, abs=1e-12)


def test_a_policy_that_never_folds_does_no_better_and_one_that_ignores_the_bets_reaches_its_landmark(
    tree: GameTree,
) -> None:
    """Random search from below: no policy is better than its landmark, and the best one found is near it."""
    rng, least = np.random.default_rng(0), {"never folds: least": np.inf, "ignores the bets: least": np.inf}
    cards = sorted({state.private for state in tree.information_sets})
    for _ in range(3000):
        chips_in = dict(zip(cards, rng.beta(0.5, 0.5, len(cards)), strict=True))
        blind, calling = uniform(tree).copy(), uniform(tree).copy()
        for row, state in enumerate(tree.information_sets):
            more = next(i for i, action in enumerate(state.actions) if action in ("[bet]", "[call]"))
            blind[row, more], blind[row, 1 - more] = chips_in[state.private], 1 - chips_in[state.private]
            p = 1.0 if "[call]" in state.actions else rng.random()
            calling[row, more], calling[row, 1 - more] = p, 1 - p
        for name, table in (("never folds: least", calling), ("ignores the bets: least", blind)):
            least[name] = min(least[name], nash_conv(tree, table))
    for name, value in least.items():
        assert LANDMARKS[name] - 1e-9 <= value <= LANDMARKS[name] + 0.05, name
