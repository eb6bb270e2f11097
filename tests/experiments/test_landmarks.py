"""What the pages say of Kuhn poker: NashConv of simple policies, and why win shares do not measure strength."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.learning_page import LANDMARKS
from recipe.spiral.lab.evaluation.exploitability.information_sets import Floats, GameTree, game_tree
from recipe.spiral.lab.evaluation.exploitability.nash_conv import nash_conv
from recipe.spiral.lab.evaluation.exploitability.tabulated import expected_results, uniform
from tests.lab.evaluation.exploitability.tables import kuhn_equilibrium


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
    shares = [won_against_random_play(tree, kuhn_equilibrium(alpha)) for alpha in (0.0, 1 / 3)]
    assert [first for first, _ in shares] == pytest.approx([0.444, 0.528], abs=1e-3)
    assert [second for _, second in shares] == pytest.approx([0.472, 0.472], abs=1e-3)
    assert nash_conv(tree, kuhn_equilibrium(0.0)) == pytest.approx(0.0, abs=1e-12)


def by_card_and_seat(tree: GameTree, chips_in: list[list[float]]) -> Floats:
    """The policy that bets and calls with this probability: [player][card], whatever was bet before."""
    table = np.zeros_like(uniform(tree))
    for row, state in enumerate(tree.information_sets):
        p = chips_in[state.player]["JQK".index(state.private)]
        more = next(i for i, action in enumerate(state.actions) if action in ("[bet]", "[call]"))
        table[row, more], table[row, 1 - more] = p, 1 - p
    return table


def test_a_policy_that_does_not_look_at_the_bets_reaches_its_landmark_and_no_change_of_it_does_better(
    tree: GameTree,
) -> None:
    rng, landmark = np.random.default_rng(0), LANDMARKS["acts by card and seat only: least"]
    best = np.array([[0.09175, 0.59763, 0.83333], [1 / 3, 1 / 3, 1.0]])
    assert nash_conv(tree, by_card_and_seat(tree, best.tolist())) == pytest.approx(landmark, abs=1e-4)
    for width in (0.02, 0.2) * 50:
        other = np.clip(best + rng.normal(0, width, best.shape), 0, 1)
        assert nash_conv(tree, by_card_and_seat(tree, other.tolist())) > landmark - 1e-4


def test_no_policy_that_never_folds_is_below_its_landmark(tree: GameTree) -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        table = always(tree, "[bet]", "[call]")
        for row, state in enumerate(tree.information_sets):
            if "[bet]" in state.actions:
                p = rng.beta(0.5, 0.5)
                table[row] = [p if action == "[bet]" else 1 - p for action in state.actions]
        assert nash_conv(tree, table) >= LANDMARKS["never folds: least"] - 1e-9
