"""The lines that a person reads, and how they reach the terminal."""

from __future__ import annotations

from pathlib import Path

from recipe.spiral.processes.run_log import LOG
from recipe.spiral.training.console import WIDTH, Console
from recipe.spiral.training.metrics import training_metrics
from tests.made import record, turn


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


def test_the_eta_of_a_resumed_run_counts_its_own_steps_only(tmp_path: Path) -> None:
    clock = Clock()
    console = Console(tmp_path, clock)
    console.start(60, 100)
    clock.now += 10.0
    console.step(61, metrics(), SECONDS)
    start, line = log(tmp_path)
    assert start == "going on after step 60 of 100"
    assert line.endswith("ETA 6m30s"), "39 steps at 10 s"
