"""Metrics, counted by hand: from games, so that games without rows count and padding cannot."""

from __future__ import annotations

from statistics import fmean, pstdev

import pytest

from recipe.spiral.players.records import GameRecord, Tokens
from recipe.spiral.training.metrics import (
    role_metrics,
    training_metrics,
    validation_metrics,
)
from tests.made import counted, record, turn

#: TicTacToe: player 0 wins; draws; errs at once (player 1 never moves). Player 1 is cut off in Kuhn poker.
WON = record(0, rewards=(1.0, -1.0), turns=[turn(0, 0, length=4), turn(1, 0), turn(0, 1, length=2)])
DRAWN = record(1, turns=[turn(0, 0), turn(1, 0)], termination="turn_cap")
FORFEIT = record(2, rewards=(-1.5, 0.5), turns=[turn(0, 0, "no_answer", length=8)], termination="illegal")
KUHN = record(
    3,
    "KuhnPoker",
    rewards=(0.5, -1.5),
    turns=[turn(0, 0), turn(1, 0, "truncated", length=16, truncated=True)],
    termination="illegal",
)
GAMES = [WON, DRAWN, FORFEIT, KUHN]


def test_roles_are_counted_apart() -> None:
    assert counted(role_metrics(GAMES, "x"), "x/TicTacToe/p0/") == {
        "win": pytest.approx(1 / 3),
        "draw": pytest.approx(1 / 3),
        "loss": pytest.approx(1 / 3),
        "invalid": pytest.approx(1 / 3),
        "turns": pytest.approx(4 / 3),
        "reward": pytest.approx(-0.5 / 3),
        "games": 3.0,
        "prompt_too_long": 0.0,
        "response_tokens": pytest.approx((4 + 2 + 2 + 8) / 4),
        "truncated": 0.0,
        "entropy": 0.5,
    }
    assert counted(role_metrics(GAMES, "x"), "x/KuhnPoker/p1/") == {
        "win": 0.0,
        "draw": 0.0,
        "loss": 1.0,
        "invalid": 1.0,
        "turns": 1.0,
        "reward": -1.5,
        "games": 1.0,
        "prompt_too_long": 0.0,
        "response_tokens": 16.0,
        "truncated": 1.0,
        "entropy": 0.5,
    }


def test_opponents_are_not_counted() -> None:
    """Of a game against a frozen opponent, the learner's role alone; the opponent's turns have no tokens."""
    game = record(0, rewards=(-1.0, 1.0), turns=[turn(0, 0, tokens=None), turn(1, 0, length=6)], trainable=(1,))
    metrics = role_metrics([game], "x")
    assert {name.split("/")[2] for name in metrics} == {"p1"}
    assert (metrics["x/TicTacToe/p1/win"], metrics["x/TicTacToe/p1/response_tokens"]) == (1.0, 6.0)


def test_games_that_a_prompt_ended_are_lost_for_both() -> None:
    turns = [turn(0, 0), turn(1, 0)]
    games = [WON, record(4, rewards=(-1.0, -1.0), turns=turns, termination="prompt_too_long")]
    metrics = training_metrics(games, [])
    for role, loss in ((0, 0.5), (1, 1.0)):
        counts = counted(metrics, f"games/TicTacToe/p{role}/")
        assert (counts["loss"], counts["draw"], counts["prompt_too_long"]) == (loss, 0.0, 0.5)
    assert (metrics["games/prompt_too_long"], metrics["games/draw"], metrics["games/turn_cap"]) == (0.5, 0.0, 0.0)
    assert metrics["games/TicTacToe/role_imbalance"] == 1.0, "of decided games, and nobody won this one"


def test_baselines_and_advantages_are_reported_by_role() -> None:
    values = [0.9, 0.9, -1.1]
    games = [
        record(0, turns=[turn(0, 0, advantage=values[0]), turn(1, 0), turn(0, 1, advantage=values[1])]),
        record(1, turns=[turn(0, 0, advantage=values[2])]),
    ]
    for game in games:
        game.baselines = (0.1, None)
    metrics = training_metrics(games, [])
    assert metrics["games/TicTacToe/p0/baseline"] == 0.1
    assert metrics["games/TicTacToe/p0/advantage_mean"] == pytest.approx(fmean(values))
    assert metrics["games/TicTacToe/p0/advantage_std"] == pytest.approx(pstdev(values))
    assert "games/TicTacToe/p1/baseline" not in metrics
    assert "games/TicTacToe/p1/advantage_mean" not in metrics


def test_every_opponent_is_counted_apart_with_intervals() -> None:
    """Of 4 wins in 5 games, Wilson's interval as Brown, Cai and DasGupta's formula (4) gives it by hand."""
    games = [_met("perfect", index, (-1.0, 1.0)) for index in range(5)]
    games += [_met("random", 5 + index, (1.0, -1.0) if index < 4 else (0.0, 0.0)) for index in range(5)]
    metrics = validation_metrics(games)
    assert counted(metrics, "val-core/random/TicTacToe/p0/") == {
        "reward": pytest.approx(0.8),
        "win": 0.8,
        "draw": pytest.approx(0.2),
        "loss": 0.0,
        "invalid": 0.0,
        "turns": 1.0,
        "games": 5.0,
    }
    aux = counted(metrics, "val-aux/random/TicTacToe/p0/")
    assert (aux["win_low"], aux["win_high"]) == (pytest.approx(0.3755, abs=1e-4), pytest.approx(0.9638, abs=1e-4))
    assert (aux["loss_low"], aux["loss_high"]) == (0.0, pytest.approx(0.4345, abs=1e-4))
    assert {f"{share}_{end}" for share in ("win", "draw", "loss", "invalid") for end in ("low", "high")} <= set(aux)
    assert metrics["val-core/TicTacToe/p0/win"] == metrics["val-core/perfect/TicTacToe/p0/win"] == 0.0, "the first"


def _met(opponent: str, index: int, rewards: tuple[float, float], game: str = "TicTacToe", **more: str) -> GameRecord:
    return record(index, game, rewards, turns=[turn(0, 0)], trainable=(0,), opponent=opponent, **more)


def test_the_entropy_is_the_mean_surprise_of_the_sampled_tokens() -> None:
    """Of tokens, not of turns: a long response weighs more."""
    short = Tokens([1], [7], [-3.0], (0, 0))
    long = Tokens([1], [7, 8, 9], [-1.0, -2.0, 0.0], (0, 0))
    game = record(0, turns=[turn(0, 0, tokens=short), turn(1, 0, tokens=long)])
    metrics = training_metrics([game], [])
    assert metrics["turns/entropy"] == pytest.approx(6 / 4)
    assert metrics["games/TicTacToe/p0/entropy"] == pytest.approx(3.0)
    assert metrics["games/TicTacToe/p1/entropy"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("outcomes", "imbalance"),
    [([1, -1], 0.0), ([1, 1, 1, -1], 0.5), ([-1, -1, 0], 1.0), ([0], 0.0)],
)
def test_imbalance_is_among_the_decided_games_of_self_play(outcomes: list[float], imbalance: float) -> None:
    games = [record(i, rewards=(outcome, -outcome)) for i, outcome in enumerate(outcomes)]
    against = record(9, "KuhnPoker", rewards=(1.0, -1.0), turns=[turn(0, 0)], trainable=(0,))
    metrics = training_metrics([*games, against], [])
    assert metrics["games/TicTacToe/role_imbalance"] == imbalance
    assert "games/KuhnPoker/role_imbalance" not in metrics
