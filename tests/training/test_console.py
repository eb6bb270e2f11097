"""The lines that a person reads, and how they reach the terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from recipe.spiral.lab.run_progress import steps_done
from recipe.spiral.processes.run_log import LOG
from recipe.spiral.spin.dpo_settings import DpoSettings
from recipe.spiral.spin.pairs import PairObjective
from recipe.spiral.training.console import WIDTH, Console
from recipe.spiral.training.metrics import training_metrics, validation_metrics
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


def test_pairs_are_shown_and_their_lack_is_said(tmp_path: Path) -> None:
    console = Console(tmp_path / "run")
    console.objective = PairObjective(DpoSettings())
    console.start(0, 2)
    pairs = {"pairs/count": 12.0, "pairs/ties": 3.0, "actor/dpo_accuracy": 0.75, "actor/dpo_margin": 0.01}
    console.step(1, metrics() | pairs, SECONDS)
    console.step(2, metrics() | {"pairs/count": 0.0, "pairs/ties": 15.0}, SECONDS)
    _, some, none = log(tmp_path / "run")
    assert "  pairs 12 (ties 3) accuracy 75% margin +0.010  KuhnPoker" in some
    assert "  pairs 0 (ties 15), so that there was no update  " in none


def test_games_that_a_prompt_ended_are_shown(tmp_path: Path) -> None:
    console = Console(tmp_path, Clock())
    console.start(0, 100)
    console.step(1, {**metrics(), "games/prompt_too_long": 0.03}, SECONDS)
    assert "s  prompt too long 3.0%  KuhnPoker" in log(tmp_path)[1]


def test_games_that_were_too_old_are_shown(tmp_path: Path) -> None:
    console = Console(tmp_path, Clock())
    console.start(0, 100)
    console.step(1, {**metrics(), "async/dropped": 2.0}, SECONDS)
    console.step(2, {**metrics(), "async/dropped": 0.0}, SECONDS)
    _, some, none = log(tmp_path)
    assert "s  stale 2  KuhnPoker" in some and "stale" not in none


def test_the_eta_of_a_resumed_run_counts_its_own_steps_only(tmp_path: Path) -> None:
    clock = Clock()
    console = Console(tmp_path, clock)
    console.start(60, 100)
    clock.now += 10.0
    console.step(61, metrics(), SECONDS)
    start, line = log(tmp_path)
    assert start == "going on after step 60 of 100"
    assert line.endswith("ETA 6m30s"), "39 steps at 10 s"


def test_a_step_without_an_update_has_its_line(tmp_path: Path) -> None:
    """While verl's critic warms up there is no gradient norm."""
    console = Console(tmp_path, Clock())
    console.start(0, 9)
    bare = {name: value for name, value in metrics().items() if not name.startswith("actor/")}
    console.step(1, bare, {"step": 2.0})
    assert re.search(r"step 1/9  2\.0 s ", log(tmp_path)[-1])


def test_a_validation_has_a_line_for_each_game_and_role(tmp_path: Path) -> None:
    console = Console(tmp_path)
    games = [
        record(0, rewards=(1.0, -1.0), turns=[turn(0, 0)], trainable=(0,)),
        record(1, rewards=(1.0, -1.0), turns=[turn(1, 0)], trainable=(1,)),
        record(2, rewards=(0.0, 0.0), turns=[turn(1, 0)], trainable=(1,)),
    ]
    console.validation(40, validation_metrics(games))
    first, second = log(tmp_path)
    assert re.search(
        r"validation at step 40: TicTacToe/p0 +win 100\.0%  draw +0\.0%  loss +0\.0%.*  reward \+1\.00  \(1 games\)",
        first,
    )
    assert re.search(
        r"validation at step 40: TicTacToe/p1 +win +0\.0%  draw +50\.0%  loss +50\.0%.*\(2 games\)", second
    )


def test_a_validation_with_several_opponents_names_them(tmp_path: Path) -> None:
    games = [
        record(index, rewards=(1.0, -1.0), turns=[turn(0, 0)], trainable=(0,), opponent=opponent)
        for index, opponent in enumerate(("perfect", "random"))
    ]
    Console(tmp_path).validation(40, validation_metrics(games))
    first, second = log(tmp_path)
    assert re.search(r"at step 40: perfect/TicTacToe/p0 +win 100\.0%.*\(1 games\)$", first)
    assert re.search(r"at step 40: random/TicTacToe/p0 +win 100\.0%.*\(1 games\)$", second)


def test_the_end_says_how_far_and_how_long(tmp_path: Path) -> None:
    clock = Clock()
    console = Console(tmp_path, clock)
    console.start(0, 5)
    clock.now += 3725
    console.finish()
    assert log(tmp_path)[-1] == "trained to step 5 in 1h02m"


def test_a_run_that_only_validated_has_no_last_line(tmp_path: Path) -> None:
    Console(tmp_path).finish()
    assert not (tmp_path / LOG).exists()


@pytest.mark.parametrize(
    ("log", "steps"),
    [
        (None, 0),
        ("training for 6 steps\nvalidation at step 0: Nim/p0\n", 0),
        ("training for 6 steps\nstep 1/6  1.9 s\nstep 2/6  1.9 s\nvalidation at step 4: Nim/p0\n", 2),
        ("step   5/200  1.9 s\ngoing on after step 4 of 200\n", 4),
        ("step 6/6  1.9 s\ntrained to step 6 in 12s\n", 6),
    ],
)
def test_the_log_tells_how_far_a_run_came(tmp_path: Path, log: str | None, steps: int) -> None:
    if log is not None:
        (tmp_path / LOG).write_text(log)
    assert steps_done(tmp_path) == steps
