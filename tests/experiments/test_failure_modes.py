"""Failures on a run's way, from curves made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from experiments.failure_modes import ITSELF, OTHERS, failures
from experiments.result import Result
from tests.made_results import made_result


def result(points: list[dict[str, float]], **more: Any) -> Result:
    curves: dict[str, Any] = {"self-play": {"0": {"points": points, **more}}}
    return made_result(figures={"curves": curves})


def point(games: int, first: tuple[float, float, float], second: tuple[float, float, float]) -> dict[str, float]:
    """Won, drawn and illegal as player 0 and as player 1, against random play."""
    shares: dict[str, float] = {"step": games / 128, "games": games}
    for role, (win, draw, invalid) in enumerate((first, second)):
        place = f"TicTacToe, player {role}, random"
        shares |= {f"{place}: win": win, f"{place}: draw": draw, f"{place}: invalid": invalid}
        shares[f"{place}: loss"] = 1 - win - draw
    return shares


def test_each_failure_is_shown_at_its_worst() -> None:
    found = failures(
        result(
            [
                point(0, (0.4, 0.1, 0.05), (0.2, 0.1, 0.02)),
                point(1280, (0.8, 0.1, 0.0), (0.6, 0.1, 0.0)),  # the best: (0.85 + 0.65) / 2
                point(2560, (0.7, 0.0, 0.0), (0.1, 0.0, 0.4)),  # (0.7 + 0.1) / 2
                point(3840, (0.8, 0.0, 0.0), (0.6, 0.0, 0.1)),  # (0.8 + 0.6) / 2
            ]
        )
    )
    worst = {"illegal answers": "40.0%", "drop of the score": "35.0%", "one role behind": "40.0%"}
    assert found == {("self-play", OTHERS): worst}


def test_of_several_seeds_the_worst_is_shown() -> None:
    made = result([point(0, (0.4, 0.1, 0.05), (0.2, 0.1, 0.02)), point(1280, (0.8, 0.1, 0.1), (0.6, 0.1, 0.0))])
    worse = [point(0, (0.4, 0.1, 0.05), (0.2, 0.1, 0.02)), point(1280, (0.8, 0.1, 0.3), (0.6, 0.1, 0.0))]
    made.figures["curves"]["self-play"]["7"] = {"points": worse}
    [cells] = failures(replace(made, seeds=(0, 7), settings={"loop": "quick"})).values()
    assert cells["illegal answers"] == "30.0%"


def test_of_a_policy_that_plays_itself_the_form_and_nash_conv_are_looked_at() -> None:
    curve = [(0, 0.9, 0.01), (128, 0.3, 0.2), (256, 0.5, 0.0), (384, 0.2, 0.02)]
    points = [
        {"step": games / 128, "games": games, "NashConv": distance, "illegal": illegal}
        for games, distance, illegal in curve
    ]
    found = failures(result(points, trained_on=["KuhnPoker"]))
    assert found == {("self-play", ITSELF): {"illegal answers": "20.0%", "rise of NashConv": "0.200"}}


def test_a_run_that_was_measured_without_games_has_no_table() -> None:
    assert failures(result([{"step": 0, "games": 0, "MATH": 0.9}])) == {}


def test_a_game_that_was_not_trained_on_has_no_failures() -> None:
    points = [point(0, (0.4, 0.1, 0.05), (0.2, 0.1, 0.02)), point(1280, (0.8, 0.1, 0.0), (0.6, 0.1, 0.0))]
    assert failures(result(points, trained_on=["KuhnPoker"])) == {}
    assert failures(result(points, trained_on=["KuhnPoker", "TicTacToe"]))
