"""Arms beside the first one, by hand."""

from __future__ import annotations

from typing import Any

from experiments.paired import paired
from experiments.result import Result
from tests.made_results import made_result


def result(rows: list[dict[str, Any]], seeds: tuple[int, ...]) -> Result:
    arms = {row["arm"]: [] for row in rows}
    return made_result(seeds=seeds, settings={"arms": arms}, rows=rows)


def test_an_arm_is_compared_with_the_first_one_seed_by_seed() -> None:
    told = {("KL", 0): 0.2, ("KL", 1): 0.6, ("entropy", 0): 0.3, ("entropy", 1): 0.7}
    rows = [{"arm": arm, "seed": seed, "NashConv, mean": value} for (arm, seed), value in told.items()]
    assert "| entropy | 0.100 ± 0.000 |" in paired(result(rows, (0, 1))), (
        "seeds make a difference, but the same to both"
    )


def test_games_are_compared_by_wins_and_half_of_the_draws() -> None:
    rows = [
        {"arm": arm, "seed": seed, "Nim, player 1, random: win": win, "Nim, player 1, random: draw": 0.2}
        for arm, win in (("a", 0.1), ("b", 0.4))
        for seed in (3, 5)
    ]
    page = paired(result(rows, (3, 5)))
    assert "| arm | Nim, player 1, random: score |" in page and "| b | 0.300 ± 0.000 |" in page


def test_where_there_is_nothing_of_that_kind_nothing_is_compared() -> None:
    rows = [{"arm": arm, "seed": seed, "Nim, optimal moves": 0.5} for arm in ("a", "b") for seed in (0, 1)]
    assert paired(result(rows, (0, 1))) == ""


def test_of_one_arm_or_one_seed_nothing_is_said() -> None:
    rows = [{"arm": arm, "seed": seed, "NashConv, mean": 0.1} for arm in ("a", "b") for seed in (0, 1)]
    assert paired(result(rows[:2], (0, 1))) == "" and paired(result(rows[::2], (0,))) == ""
