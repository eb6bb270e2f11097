"""What comes of known policies, by enumeration."""

from __future__ import annotations

import numpy as np
import pytest

from recipe.spiral.evaluation.equilibrium import KUHN_VALUE, kuhn_poker
from recipe.spiral.evaluation.information_sets import game_tree
from recipe.spiral.evaluation.tabulated import (
    checked,
    expected_results,
    expected_rewards,
    reach,
    renormalised,
    tabulate,
    uniform,
)
from recipe.spiral.match import Rules
from tests.evaluation.naive import outcome


def test_random_tictactoe() -> None:
    results = expected_results("TicTacToe")
    assert [round(100 * share, 1) for share in (results.win, results.loss, results.draw)] == [58.5, 28.8, 12.7]
    assert results.win == pytest.approx(737 / 1260)
    assert results.illegal == (0, 0)


@pytest.mark.parametrize("alpha", [0, 0.1, 0.25, 1 / 3])
def test_equilibria_of_kuhn_poker_have_its_value(alpha: float) -> None:
    tree = game_tree("KuhnPoker")
    first, second = expected_rewards(tree, kuhn_poker(alpha))
    assert tree.unit * first == pytest.approx(KUHN_VALUE) == -1 / 18
    assert first == -second


def test_random_kuhn_poker() -> None:
    """Half the deals and half the folds: 1/8 of a chip for player 0."""
    results = expected_results("KuhnPoker")
    assert 2 * results.rewards[0] == pytest.approx(1 / 8)
    assert results.win + results.loss == pytest.approx(1) and results.draw == 0


def test_random_nim_is_even() -> None:
    """From a pile of n >= 2 random play wins with 1/2, so with several piles nobody has an advantage in the end."""
    results = expected_results("Nim")
    assert (results.win, results.draw) == (pytest.approx(1 / 2), 0)


def test_illegal_answers_end_the_game() -> None:
    """A player 0 that answers illegally with 1/4 at its first turn, and is legal ever after."""
    tree = game_tree("KuhnPoker")
    table = uniform(tree)
    first = [row for row, found in enumerate(tree.information_sets) if not found.history]
    table[first] *= 0.75
    results = expected_results("KuhnPoker", table)
    assert results.illegal == (pytest.approx(0.25), 0)
    assert results.win + results.draw + results.loss == pytest.approx(1)
    assert results.rewards == (pytest.approx(0.75 / 16 - 0.25 * 1.5), pytest.approx(-0.75 / 16 + 0.25 * 0.5))
    as_loss = expected_results("KuhnPoker", table, rules=Rules(illegal_rewards=(-1, 1)))
    assert sum(as_loss.rewards) == pytest.approx(0)


def test_rewards_are_those_of_playing_it_out() -> None:
    tree = game_tree("KuhnPoker")
    rng = np.random.default_rng(3)
    for _ in range(20):
        table = rng.dirichlet((1, 1, 1), size=12)[:, :2]
        assert expected_rewards(tree, table) == pytest.approx(outcome(behaviour(table)))


def behaviour(table: np.ndarray) -> dict[tuple[int, str, str], float]:
    return {
        (found.player, found.observation, action): float(probability)
        for found, row in zip(game_tree("KuhnPoker").information_sets, table, strict=True)
        for action, probability in zip(found.actions, row, strict=True)
    }


@pytest.mark.parametrize("game_id", ["KuhnPoker", "Nim", "TicTacToe"])
def test_every_game_ends(game_id: str) -> None:
    tree = game_tree(game_id)
    assert reach(tree, uniform(tree))[tree.players < 0].sum() == pytest.approx(1)


def test_tables_are_checked() -> None:
    tree = game_tree("KuhnPoker")
    with pytest.raises(ValueError, match="shape"):
        checked(tree, np.zeros((3, 2)))
    for bad in (-0.1, np.nan, np.inf):
        with pytest.raises(ValueError, match="must hold probabilities"):
            checked(tree, np.where(np.eye(12, 2) > 0, bad, 0.0))
    with pytest.raises(ValueError, match=r"sum to 1.1000"):
        checked(tree, np.full((12, 2), 0.55))
    with pytest.raises(ValueError, match=r"must hold probabilities, and 0 where there is no action"):
        checked(game_tree("Nim"), np.full(game_tree("Nim").legal.shape, 0.01))
    with pytest.raises(ValueError, match=r"\[fold\] is not legal in KuhnPoker after \(\)"):
        tabulate(tree, lambda found: {"[fold]": 1.0})


def test_renormalised_is_uniform_where_nothing_is_legal() -> None:
    tree = game_tree("KuhnPoker")
    table = np.zeros((12, 2))
    table[0] = 0.1, 0.3
    expected = np.full((12, 2), 0.5)
    expected[0] = 0.25, 0.75
    assert renormalised(tree, table) == pytest.approx(expected)
