"""The trees: the right number of everything, made of positions that the games themselves come to."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.evaluation.information_sets import ENUMERATED, branch, game_tree
from recipe.spiral.evaluation.openspiel import information_state
from recipe.spiral.games import make

QUICK = ("KuhnPoker", "Nim", "TicTacToe")


def test_kuhn_poker_has_twelve_information_sets() -> None:
    tree = game_tree("KuhnPoker")
    names = {information_state(found) for found in tree.information_sets}
    assert names == {card + history for card in "012" for history in ("", "p", "b", "pb")}
    assert len(tree.roots) == 6
    assert (tree.players < 0).sum() == 30
    assert tree.is_tree


def test_boards() -> None:
    """TicTacToe has 5478 positions, 958 of them over; Nim (3, 4, 5) has 4 * 5 * 6 - 1 sets of piles to move in."""
    tictactoe, nim = game_tree("TicTacToe"), game_tree("Nim")
    assert len(tictactoe.information_sets) == 5478 - 958
    assert len({found.observation for found in nim.information_sets}) == 119
    assert not tictactoe.is_tree and not nim.is_tree


@pytest.mark.parametrize("game_id", QUICK)
def test_information_sets_are_positions_of_the_game(game_id: str) -> None:
    tree = game_tree(game_id)
    for found in tree.information_sets[:: max(1, len(tree.information_sets) // 200)]:
        game = found.game()
        assert game.current_player == found.player
        assert game.observation(found.player) == found.observation
        assert game.legal_actions() == found.actions


@pytest.mark.parametrize("game_id", QUICK)
def test_random_games_stay_in_the_tree(game_id: str) -> None:
    tree = game_tree(game_id)
    rng = random.Random(1)
    for seed in range(50):
        game = make(game_id, seed)
        nodes = set(tree.roots.tolist())  # those that it may be, for all that was seen
        while not game.is_terminal:
            row = tree.row_of[game.current_player, game.observation(game.current_player)]
            nodes = {node for node in nodes if tree.rows[node] == row}
            action = game.random_action(rng)
            column = tree.information_sets[row].actions.index(action)
            nodes = {int(tree.children[node, column]) for node in nodes}
            game.step(action)
        assert game.rewards()[0] in {tree.rewards[node] for node in nodes if tree.rows[node] < 0}


@pytest.mark.parametrize("game_id", ENUMERATED)
def test_a_branch_is_a_copy(game_id: str) -> None:
    rng = random.Random(2)
    for seed in range(20):
        game = make(game_id, seed)
        while not game.is_terminal:
            before, action = game.render(), game.random_action(rng)
            copied, branched = game.copy(), branch(game)
            copied.step(action)
            branched.step(action)
            assert game.render() == before
            assert branched.is_terminal == copied.is_terminal and branched.rewards() == copied.rewards()
            if not copied.is_terminal:
                assert branched.render() == copied.render()
            game = copied


def test_other_games_are_refused() -> None:
    with pytest.raises(ValueError, match="LiarsDice cannot be enumerated; the games that can are KuhnPoker"):
        game_tree("LiarsDice")


def test_an_alias_is_the_same_tree() -> None:
    assert game_tree("TicTacToe-v0") is game_tree("TicTacToe")


@pytest.mark.full
def test_liars_dice_with_one_die() -> None:
    """Any of 12 bids may have been made or not, 4096 histories; for each of the 6 faces that a player may hold."""
    tree = game_tree("LiarsDice-1")
    assert len(tree.information_sets) == 6 * 4096
    assert len(tree.roots) == 36
    assert (tree.players < 0).sum() == 36 * 4095
    assert tree.is_tree
    rng = random.Random(1)
    for found in rng.sample(tree.information_sets, 300):
        game = found.game()
        assert game.current_player == found.player
        assert (game.observation(found.player), game.legal_actions()) == (found.observation, found.actions)
