"""Metrics, counted by hand: from games, so that games without rows count and padding cannot."""

from __future__ import annotations

import pytest

from recipe.spiral.players.records import GameRecord
from recipe.spiral.training.metrics import (
    role_metrics,
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
