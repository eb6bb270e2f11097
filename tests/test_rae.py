"""RAE by hand: advantages of turns, and how the baselines move."""

from __future__ import annotations

import json

import pytest
import torch

from recipe.spiral.players.records import GameRecord
from recipe.spiral.rae import RoleBaselines, rae_advantages
from tests.made import record, turn


def rows(
    *turns: tuple[float, float, int, int], width: int = 3, gamma: float = 1.0
) -> tuple[list[list[float]], list[list[float]]]:
    """Advantages and returns of turns given as (R, b, own turns remaining, response tokens)."""
    outcomes, baselines, remaining, lengths = zip(*turns, strict=True)
    mask = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
    advantages, returns = rae_advantages(
        torch.tensor(outcomes), torch.tensor(baselines), torch.tensor(remaining), mask, gamma
    )
    assert advantages.shape == returns.shape == (len(turns), width)
    return advantages.tolist(), returns.tolist()


def test_the_advantage_is_the_outcome_less_the_baseline() -> None:
    """R - b on every response token, nothing elsewhere; the outcome enters once (never 2R - b)."""
    advantages, returns = rows((1.0, 0.25, 0, 3), (-1.0, 0.25, 0, 1), (0.0, -0.5, 0, 2))
    assert advantages == [[0.75, 0.75, 0.75], [-1.25, 0.0, 0.0], [0.5, 0.5, 0.0]]
    assert returns == [[1.0, 1.0, 1.0], [-1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]


def test_gamma_discounts_by_own_turns_that_remain() -> None:
    """Player 0 had three turns and won, player 1 two: b = 0.5 and -0.25, gamma = 0.5."""
    winner = [(1.0, 0.5, 2, 1), (1.0, 0.5, 1, 1), (1.0, 0.5, 0, 1)]
    loser = [(-1.0, -0.25, 1, 1), (-1.0, -0.25, 0, 1)]
    advantages, returns = rows(*winner, *loser, width=1, gamma=0.5)
    assert advantages == [[0.125], [0.25], [0.5], [-0.375], [-0.75]]
    assert returns == [[0.25], [0.5], [1.0], [-0.5], [-1.0]]


@pytest.mark.parametrize("gamma", [0.9, 0.99, 0.999])
def test_a_discount_over_many_turns_is_exact_to_float32(gamma: float) -> None:
    """The audit computes it in float64, and takes 1e-6 for rounding."""
    advantages, returns = rows(*[(1.0, -1.0, remaining, 1) for remaining in range(300)], width=1, gamma=gamma)
    for remaining, ((advantage,), (reward,)) in enumerate(zip(advantages, returns, strict=True)):
        assert advantage == pytest.approx(2 * gamma**remaining, abs=5e-7)
        assert reward == pytest.approx(gamma**remaining, abs=5e-7)


def test_padding_rows_are_zero_whatever_they_claim() -> None:
    """Padding clones a real row's fields but has an empty mask."""
    advantages, returns = rows((1.0, 0.5, 3, 0), (1.0, 0.5, 0, 2), gamma=0.9)
    assert advantages[0] == returns[0] == [0.0, 0.0, 0.0]
    assert advantages[1] == [0.5, 0.5, 0.0]


def won(index: int, player: int, game: str = "TicTacToe", **more: object) -> GameRecord:
    return record(index, game, (1.0, -1.0) if player == 0 else (-1.0, 1.0), **more)  # type: ignore[arg-type]


def test_baselines_take_one_step_per_game_in_the_order_of_keys() -> None:
    """Outcomes +1, -1, 0 of player 0 at decay 1/2: 0 -> 0.5 -> -0.25 -> -0.125, however they arrive."""
    games = [won(0, 0), won(1, 1), record(2)]
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        baselines = RoleBaselines(decay=0.5)
        baselines.update([games[i] for i in order])
        assert baselines.state_dict()["values"] == [["TicTacToe", 0, "self", -0.125], ["TicTacToe", 1, "self", 0.125]]


def test_baselines_can_take_one_step_per_batch() -> None:
    """Outcomes +1, +1, -1 of player 0: mean 1/3, so 0.95 * 0 + 0.05 / 3."""
    baselines = RoleBaselines(update="batch")
    baselines.update([won(0, 0), won(1, 0), won(2, 1)])
    assert baselines.get("TicTacToe", 0) == pytest.approx(0.05 / 3)
    assert baselines.get("TicTacToe", 1) == pytest.approx(-0.05 / 3)


def test_games_and_roles_have_baselines_of_their_own() -> None:
    baselines = RoleBaselines(decay=0.5)
    baselines.update([won(0, 0), record(1, "KuhnPoker", (0.5, -0.5))])
    assert baselines.state_dict()["values"] == [
        ["KuhnPoker", 0, "self", 0.25],
        ["KuhnPoker", 1, "self", -0.25],
        ["TicTacToe", 0, "self", 0.5],
        ["TicTacToe", 1, "self", -0.5],
    ]
    assert baselines.get("Nim", 0) == 0.0


def test_a_player_who_never_moved_moves_its_baseline() -> None:
    """Player 0 erred on its first turn: player 1 has no rows, and both baselines move."""
    baselines = RoleBaselines(decay=0.5)
    game = record(0, rewards=(-1.5, 0.5), turns=[turn(0, 0, "no_answer")], termination="illegal")
    baselines.update([game])
    assert baselines.state_dict()["values"] == [["TicTacToe", 0, "self", -0.75], ["TicTacToe", 1, "self", 0.25]]


@pytest.mark.parametrize("learner", [0, 1])
def test_only_trainable_players_move_baselines(learner: int) -> None:
    baselines = RoleBaselines(decay=0.5)
    baselines.update([won(0, learner, trainable=(learner,))])
    assert baselines.state_dict()["values"] == [["TicTacToe", learner, "self", 0.5]]


def test_a_restored_run_goes_on_with_the_same_baselines() -> None:
    """Through JSON, as in a checkpoint; bit for bit."""
    first = RoleBaselines()
    first.update([won(i, i % 3 % 2, game) for i in range(7) for game in ("TicTacToe", "KuhnPoker")])
    second = RoleBaselines()
    second.update([won(0, 1, "Nim")])  # is forgotten
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert second.state_dict() == first.state_dict()
    for baselines in (first, second):
        baselines.update([won(9, 0)])
    assert second.state_dict() == first.state_dict()


def test_a_scale_multiplies_outcome_and_baseline() -> None:
    advantages, returns = rae_advantages(
        torch.tensor([1.0, -1.0]),
        torch.tensor([0.5, 0.25]),
        torch.tensor([0, 1]),
        torch.ones(2, 1),
        0.5,
        scale=torch.tensor([2.0, 4.0]),
    )
    assert advantages.tolist() == [[1.0], [4 * 0.5 * -1.25]]
    assert returns.tolist() == [[2.0], [-2.0]]
