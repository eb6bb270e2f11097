"""What the plots of learning show: who is in which panel, over what."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.learning_plot import plot
from experiments.result import Result
from tests.made_results import made_result

pytest.importorskip("matplotlib")


def result(arms: dict[str, list[str]], **measures: list[float]) -> Result:
    """Of arms with one seed, by name what they were trained on; all have the same measures at two steps."""
    points = [{"step": step, "games": 64 * step, **{k: v[step] for k, v in measures.items()}} for step in (0, 1)]
    curves = {arm: {"0": {"points": points, "trained_on": games}} for arm, games in arms.items()}
    return made_result(settings={"arms": {arm: [] for arm in arms}, "mean_over": 64}, figures={"curves": curves})


def shown(drawn: Any) -> dict[str, list[str]]:
    """By panel the labelled lines."""
    return {axes.get_title(): axes.get_legend_handles_labels()[1] for axes in drawn.axes}


def test_of_several_games_each_has_a_panel_with_those_who_learned_it() -> None:
    wins = {f"{game}, player 0, random: win": [0.2, 0.5] for game in ("Nim", "TicTacToe")}
    drawn = plot(result({"both": ["Nim", "TicTacToe"], "alone": ["Nim"]}, **wins))
    assert shown(drawn) == {
        "Nim: won": ["both", "alone"],
        "TicTacToe: won": ["both"],
    }
    assert [axes.get_xlabel() for axes in drawn.axes] == ["steps", "steps"]


def test_of_one_game_the_panels_are_how_games_end() -> None:
    ends = {f"Nim, player 0, random: {end}": [0.2, 0.5] for end in ("win", "draw", "loss", "invalid")}
    drawn = plot(result({"a": ["Nim"], "b": ["Nim"]}, **ends))
    assert shown(drawn) == {name: ["a", "b"] for name in ("won", "lost", "ended by an illegal answer")}


def test_a_distance_is_shown_with_what_is_known_of_the_game() -> None:
    measures = {name: [0.9, 0.1] for name in ("NashConv", "illegal")}
    drawn = plot(result({"a": ["KuhnPoker"]}, **measures))
    assert shown(drawn) == {"NashConv": ["NashConv"], "games ended by an illegal answer": ["illegal"]}
    assert "acts by card and seat only: least" in {text.get_text() for text in drawn.axes[0].texts}


def test_of_several_games_without_shares_of_won_games_nash_conv_is_shown() -> None:
    measures = {name: [0.9, 0.1] for name in ("NashConv", "illegal")}
    drawn = plot(result({"a": ["KuhnPoker", "TicTacToe"]}, **measures))
    assert set(shown(drawn)) == {"NashConv", "games ended by an illegal answer"}
