"""Metrics, counted by hand: from games, so that games without rows count and padding cannot; and a step's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from recipe.spiral.players.records import GameRecord
from recipe.spiral.processes.run_log import LOG
from recipe.spiral.training.console import WIDTH, Console
from recipe.spiral.training.metrics import role_metrics, training_metrics, validation_metrics
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


# -- the line that a person reads --------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


SECONDS = {"step": 12.5, "gen": 6.0, "old_log_prob": 1.5, "update_actor": 4.0, "update_weights": 0.5, "adv": 0.1}


def metrics() -> dict[str, float]:
    games = [
        record(0, rewards=(1.0, -1.0), turns=[turn(0, 0, length=6), turn(1, 0, length=4)]),
        record(1, turns=[turn(0, 0, length=2), turn(1, 0, length=4)]),
        record(2, "KuhnPoker", (-1.5, 0.5), turns=[turn(0, 0, "no_answer", length=4)]),
    ]
    return {
        **training_metrics(games, []),
        "perf/games_per_second": 0.24,
        "turns/entropy": 1.23456,
        "actor/grad_norm": 0.5,
    }


def log(run_dir: Path) -> list[str]:
    return (run_dir / LOG).read_text().splitlines()


def test_a_step_is_one_line_with_what_matters(tmp_path: Path) -> None:
    clock = Clock()
    console = Console(tmp_path / "run", clock)
    console.start(0, 100)
    clock.now += 25.0
    console.step(2, metrics(), SECONDS)
    start, line = log(tmp_path / "run")
    assert start == "training for 100 steps"
    beginning = "step   2/100  12.5 s  KuhnPoker 0/0/100  TicTacToe 50/50/0  invalid 20.0%  play 6.0 update 4.0"
    assert line.startswith(beginning) and len(line) <= WIDTH == 110
    assert line.endswith("ETA 20m25s"), "98 steps at 12.5 s"
