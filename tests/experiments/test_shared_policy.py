"""One policy for several games beside one for each: means and ratios by hand, and who is compared with whom."""

from __future__ import annotations

from math import hypot, inf
from random import Random
from typing import Any

import pytest

from experiments.result import Result
from experiments.shared_policy import mean, ratio, shared_policy
from recipe.spiral.play.intervals import wilson
from tests.made_results import made_result


def result(**runs: tuple[list[str], dict[str, float]]) -> Result:
    """Of arms with one seed: what they were trained on, and the share of games that they won, by game, in the end."""
    curves: dict[str, Any] = {}
    for arm, (trained_on, won) in runs.items():
        names = {game: [f"{game}, player {role}, random: win" for role in (0, 1)] for game in won}
        start = {name: 0.25 for both in names.values() for name in both}
        end = {name: won[game] + 0.1 * (-1) ** role for game, both in names.items() for role, name in enumerate(both)}
        intervals: list[Any] = [{}, {name: (value - 0.03, value + 0.04) for name, value in end.items()}]
        points = [{"step": 0, "games": 0, **start}, {"step": 1, "games": 64, **end}]
        curves[arm] = {"0": {"points": points, "intervals": intervals, "trained_on": trained_on}}
    return made_result(figures={"curves": curves})


def test_a_policy_for_all_is_compared_with_each_games_own() -> None:
    measured = {"Nim": 0.46, "KuhnPoker": 0.5}
    page = shared_policy(
        result(
            both=(["Nim", "KuhnPoker"], measured),
            nim=(["Nim"], {"Nim": 0.5, "KuhnPoker": 0.2}),
            poker=(["KuhnPoker"], {"Nim": 0.1, "KuhnPoker": 0.4}),
        )
    )
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if ", random |" in line]
    assert [line[:4] for line in lines] == [
        ["Nim, random", "0", "64", "25.0%"],
        ["KuhnPoker, random", "0", "64", "25.0%"],
    ]
    # two independent shares, each 3 points above its lower end: hypot(3, 3) / 2
    assert lines[0][4] == "46.0% [43.9%, 48.8%]" and lines[0][5] == "50.0% [47.9%, 52.8%]"
    assert lines[0][6].startswith("92.0% [") and lines[1][6].startswith("125.0% [")
    assert [line[7] for line in lines] == ["reached", "reached"]


def test_less_than_nine_tenths_are_too_few() -> None:
    measured = {"Nim": 0.44, "KuhnPoker": 0.5}
    page = shared_policy(result(both=(["Nim", "KuhnPoker"], measured), nim=(["Nim"], {"Nim": 0.5})))
    assert page.count("missed") == 1 and "reached" not in page


def test_arms_that_play_the_same_have_no_such_table() -> None:
    assert shared_policy(result(one=(["Nim"], {"Nim": 0.5}), other=(["Nim"], {"Nim": 0.6}))) == ""
    assert shared_policy(result(both=(["Nim", "KuhnPoker"], {"Nim": 0.5, "KuhnPoker": 0.5}))) == ""


def test_a_means_interval_is_that_of_independent_shares() -> None:
    assert mean([(0.5, 0.4, 0.7), (0.3, 0.2, 0.4)]) == pytest.approx(
        (0.4, 0.4 - hypot(0.1, 0.1) / 2, 0.4 + hypot(0.2, 0.1) / 2)
    )


def test_a_ratios_interval_is_that_of_its_parts_where_one_is_known() -> None:
    assert ratio((0.4, 0.3, 0.5), (0.5, 0.5, 0.5)) == pytest.approx((0.8, 0.6, 1.0))
    assert ratio((0.5, 0.5, 0.5), (0.4, 0.32, 0.5)) == pytest.approx((1.25, 1.0, 0.5 / 0.32))


def test_a_ratio_to_what_may_be_nothing_is_not_told() -> None:
    assert ratio((0.4, 0.3, 0.5), (0.0, 0.0, 0.1)) is None


def test_the_ratio_of_what_is_known_is_known() -> None:
    """Also where rounding makes the square root's content negative."""
    rng = Random(1)
    for first, second in ((rng.random(), rng.random()) for _ in range(200)):
        told = ratio((first, first, first), (second, second, second))
        assert told == pytest.approx((first / second,) * 3, rel=1e-6)


def test_a_ratios_interval_holds_it_as_often_as_it_says() -> None:
    rng, games, held = Random(0), 512, 0
    for _ in range(1000):
        found = []
        for share in (0.55, 0.6):
            count = sum(rng.random() < share for _ in range(games))
            found.append((count / games, *wilson(count, games)))
        told = ratio(found[0], found[1])
        _, low, high = told if told is not None else (0.0, inf, -inf)
        held += low <= 0.55 / 0.6 <= high
    assert 0.93 <= held / 1000 <= 0.97
