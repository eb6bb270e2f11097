"""Perfect play, and how near others come to it."""

from __future__ import annotations

from functools import reduce
from operator import xor

import numpy as np
import pytest

from recipe.spiral.evaluation.information_sets import game_tree
from recipe.spiral.evaluation.optimality import (
    against_uniform,
    in_records,
    not_lost,
    optimal,
    over_all_decisions,
    values,
)
from recipe.spiral.evaluation.tabulated import expected_results, uniform
from recipe.spiral.games import make
from recipe.spiral.games.nim import Nim
from recipe.spiral.games.tictactoe import TicTacToe
from tests.made import Scripted, boxed, record, run_match

BOARDS = ("Nim", "TicTacToe")


def perfect(game_id: str) -> np.ndarray:
    best = optimal(game_tree(game_id))
    return best / best.sum(axis=1, keepdims=True)


def optimal_of(game: Nim | TicTacToe, game_id: str) -> set[str]:
    tree = game_tree(game_id)
    row = tree.row_of[game.current_player, game.observation(game.current_player)]
    return {
        action for action, good in zip(tree.information_sets[row].actions, optimal(tree)[row], strict=False) if good
    }


def test_values_at_the_start() -> None:
    for game_id, value in (("TicTacToe", 0), ("Nim", 1)):
        tree = game_tree(game_id)
        assert values(tree)[tree.roots].tolist() == [value]


def test_tictactoe_by_hand() -> None:
    game = TicTacToe(0)
    assert len(optimal_of(game, "TicTacToe")) == 9
    game.step("[0]")
    assert optimal_of(game, "TicTacToe") == {"[4]"}
    game.step("[8]")
    game.step("[1]")
    assert optimal_of(game, "TicTacToe") == {"[2]"}


def test_nim_by_its_theory() -> None:
    tree = game_tree("Nim")
    for row, found in enumerate(tree.information_sets):
        piles = found.game().piles
        if reduce(xor, piles) == 0:
            assert optimal(tree)[row].sum() == len(found.actions)
            continue
        for action, good in zip(found.actions, optimal(tree)[row], strict=False):
            pile, count = map(int, action.strip("[]").split())
            left = [size - count * (i == pile) for i, size in enumerate(piles)]
            assert good == (reduce(xor, left) == 0)


@pytest.mark.parametrize("game_id", BOARDS)
def test_the_perfect_players_agree(game_id: str) -> None:
    players = pytest.importorskip("recipe.spiral.players.perfect", reason="there are no perfect players")
    tree = game_tree(game_id)
    for found in tree.information_sets[::7]:
        game = found.game()
        assert {*players.optimal_actions(game)} == optimal_of(game, game_id)


@pytest.mark.parametrize("game_id", BOARDS)
def test_perfect_play_is_perfect(game_id: str) -> None:
    tree = game_tree(game_id)
    for measured in (over_all_decisions(tree, perfect(game_id)), against_uniform(tree, perfect(game_id))):
        assert (measured.share, measured.critical) == (pytest.approx(1), pytest.approx(1))
    assert expected_results(game_id, first=perfect(game_id)).loss == pytest.approx(0)
    if game_id == "TicTacToe":
        assert expected_results(game_id, second=perfect(game_id)).win == pytest.approx(0)
        assert expected_results(game_id, perfect(game_id), perfect(game_id)).draw == pytest.approx(1)


@pytest.mark.parametrize("game_id", BOARDS)
def test_shares_of_random_play(game_id: str) -> None:
    """The mean over the different observations of optimal actions among the legal ones."""
    tree = game_tree(game_id)
    best = optimal(tree)
    by_observation = {
        found.observation: best[row].sum() / len(found.actions) for row, found in enumerate(tree.information_sets)
    }
    measured = over_all_decisions(tree, uniform(tree))
    assert measured.share == pytest.approx(np.mean([*by_observation.values()]))
    careful = [share for share in by_observation.values() if share < 1]
    assert measured.critical == pytest.approx(np.mean(careful))
    assert measured.decisions == (len(by_observation), len(careful))


def test_illegal_answers_are_not_optimal() -> None:
    tree = game_tree("TicTacToe")
    half = 0.5 * perfect("TicTacToe")
    assert over_all_decisions(tree, half).share == pytest.approx(0.5)
    assert over_all_decisions(tree, half, judged=False).share == pytest.approx(1)
    assert against_uniform(tree, half).share == pytest.approx(0.5)
    assert against_uniform(tree, half).decisions[0] < against_uniform(tree, perfect("TicTacToe")).decisions[0]
    never = against_uniform(tree, np.zeros(tree.legal.shape))
    assert never.share == 0 and never.decisions[0] == pytest.approx(1), "the first answer ends the game"


def test_only_what_is_reached_counts() -> None:
    """Player 0 begins in the middle; wherever the middle is not its own it plays as badly as it can."""
    tree = game_tree("TicTacToe")
    best, table = optimal(tree), perfect("TicTacToe")
    for row, found in enumerate(tree.information_sets):
        if found.player:
            continue
        board = found.game().board
        bad = tree.legal[row] & ~best[row]
        if board == [None] * 9:
            table[row] = np.eye(9)[4]
        elif board[4] != 0 and bad.any():
            table[row] = bad / bad.sum()
    assert over_all_decisions(tree, table).share < 0.9
    assert against_uniform(tree, table).share == pytest.approx(1)


def test_decisions_in_records() -> None:
    """X takes a corner, and O does not take the middle, the only way to a draw; X does; O's next answer is illegal."""
    first = Scripted(boxed("[0]"), boxed("[4]"), name="policy")
    second = Scripted(boxed("[1]"), "I resign.", name="other")
    records = [run_match(make("TicTacToe", 0), (first, second))]
    mine, theirs = in_records(records, "policy"), in_records(records, "other")
    assert (mine.share, mine.critical, mine.decisions) == (1.0, 1.0, (2, 1))
    assert (theirs.share, theirs.critical, theirs.decisions) == (0.0, 0.0, (2, 1)), "the second is lost anyhow"
    with pytest.raises(ValueError, match="no turn of a player named 'nobody'"):
        in_records(records, "nobody")
    with pytest.raises(ValueError, match="games of one kind are needed, not of none"):
        in_records([], "policy")
    with pytest.raises(ValueError, match="not of Nim, TicTacToe"):
        in_records([*records, record(game="Nim")], "policy")


def test_games_not_lost() -> None:
    outcomes = [(0.0, 0.0)] * 6 + [(-1.0, 1.0)] * 3 + [(-1.5, 0.5)] + [(1.0, -1.0)] * 0
    records = [record(index, rewards=rewards, learners=(0,)) for index, rewards in enumerate(outcomes)]
    records.append(record(99, rewards=(1.0, -1.0), learners=(0,), discarded="void"))
    result = not_lost(records, "policy")
    assert (result.win, result.draw, result.loss, result.share) == (0, 6, 4, 0.6)
    assert result.interval == (pytest.approx(0.3127, abs=1e-4), pytest.approx(0.8318, abs=1e-4))
    assert not_lost(records, "random").win == 4, "the other side of the same games"
    with pytest.raises(ValueError, match="plays both sides"):
        not_lost([record()], "policy")
    with pytest.raises(ValueError, match="no game of a player named 'nobody'"):
        not_lost(records, "nobody")


def test_hidden_games_have_no_optimal_moves() -> None:
    with pytest.raises(ValueError, match="KuhnPoker: moves are optimal only where nothing is hidden"):
        optimal(game_tree("KuhnPoker"))


def test_the_interval_of_a_sampled_policy_holds_its_share_as_often_as_it_says() -> None:
    tree, rng = game_tree("TicTacToe"), np.random.default_rng(0)
    table = np.where(tree.legal, rng.random(tree.legal.shape), 0.0)
    table /= table.sum(axis=1, keepdims=True)
    told, held = np.column_stack([table, np.zeros(len(table))]), 0
    exact = [over_all_decisions(tree, table), against_uniform(tree, table)]
    assert exact[0].interval is exact[1].interval is None
    for _ in range(40):
        counts = rng.multinomial(4, told)
        shares = counts[:, :-1] / 4
        found = [over_all_decisions(tree, shares, counts=counts), against_uniform(tree, shares, counts)]
        for one, truth in zip(found, exact, strict=True):
            assert one.interval is not None and one.interval[0] <= one.share <= one.interval[1]
            held += one.interval[0] <= truth.share <= one.interval[1]
    assert 70 <= held <= 80
