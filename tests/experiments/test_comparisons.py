"""Arms compared by hand: with the first arm seed by seed, and one policy for several games with one for each."""

from __future__ import annotations

from math import hypot, inf
from random import Random
from typing import Any

import pytest

from experiments.comparisons import MEAN, differences, mean, ratio, shared_policy
from experiments.result import Result
from experiments.text import holm, p_value
from recipe.spiral.players.intervals import wilson
from tests.made_results import made_result


def rows_result(rows: list[dict[str, Any]], seeds: tuple[int, ...]) -> Result:
    arms = {row["arm"]: [] for row in rows}
    return made_result(seeds=seeds, settings={"arms": arms}, rows=rows)


def test_an_arm_is_compared_with_the_first_one_seed_by_seed() -> None:
    measured = {("KL", 0): 0.2, ("KL", 1): 0.6, ("entropy", 0): 0.3, ("entropy", 1): 0.7}
    rows = [{"arm": arm, "seed": seed, "NashConv, mean": value} for (arm, seed), value in measured.items()]
    said, cells = differences(rows_result(rows, (0, 1)))
    assert cells == {("entropy", MEAN): "0.100 ± 0.000 (<0.001)"}, "the seed moves both arms by the same amount"
    assert said == "Differences from 'KL' with p below 0.05 among 1: entropy."


def test_warm_starts_are_the_repetitions_not_the_seeds_of_each() -> None:
    """Differences of 0.1 and 0.3 from one warm start are one value of 0.2, beside the other's 0.5: 0.35 ± 1.906."""
    rows = [
        {"arm": arm, "seed": seed, "warm_start": start, "NashConv, mean": value}
        for arm, values in (("KL", (0, 0, 0, 0)), ("entropy", (0.1, 0.3, 0.4, 0.6)))
        for (start, seed), value in zip([(0, 0), (0, 1), (1, 0), (1, 1)], values, strict=True)
    ]
    assert differences(rows_result(rows, (0, 1)))[1]["entropy", MEAN].startswith("0.350 ± 1.906 ")
    assert differences(rows_result([row for row in rows if row["seed"] == 0], (0,)))[1]["entropy", MEAN] != ""


def test_a_run_counts_by_its_policy_or_its_reference_whichever_is_nearer_to_an_equilibrium() -> None:
    reference = "NashConv of the reference, mean"
    rows = [
        {"arm": arm, "seed": seed, "NashConv, mean": policy, reference: mean}
        for arm, policy, mean in (("mean", 0.2, 0.05), ("start", 0.1, 0.9))
        for seed in (0, 1)
    ]
    assert differences(rows_result(rows, (0, 1)))[1] == {("start", MEAN): "0.050 ± 0.000 (<0.001)"}


def test_what_is_shown_alone_is_not_shown_among_several_comparisons() -> None:
    values = {"first": (0.2, 0.2, 0.2), "far": (0.30, 0.31, 0.30), "near": (0.25, 0.26, 0.32)}
    rows = [
        {"arm": arm, "seed": seed, "NashConv, mean": value}
        for arm, by_seed in values.items()
        for seed, value in enumerate(by_seed)
    ]
    said, cells = differences(rows_result([row for row in rows if row["arm"] != "far"], (0, 1, 2)))
    assert cells["near", MEAN] == "0.077 ± 0.094 (0.073)" and said.endswith("among 1: none.")
    said, cells = differences(rows_result(rows, (0, 1, 2)))
    assert cells["far", MEAN] == "0.103 ± 0.014 (0.002)" and said.endswith("among 2: far.")


def test_p_values_are_corrected_by_holms_method() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02]), "Holm's steps, by hand"
    assert holm([0.5, 0.9]) == [1.0, 1.0] and holm([]) == []
    assert p_value([1.0, 2.0, 3.0]) == pytest.approx(0.0742, abs=1e-4), "t = 3.464 with 2 degrees of freedom"
    assert p_value([0.0, 0.0]) == 1.0 and p_value([0.1, 0.1]) == 0.0


def test_games_are_compared_by_wins_and_half_of_the_draws() -> None:
    rows = [
        {"arm": arm, "seed": seed, "Nim, player 1, random: win": win, "Nim, player 1, random: draw": 0.2}
        for arm, win in (("a", 0.1), ("b", 0.4))
        for seed in (3, 5)
    ]
    assert differences(rows_result(rows, (3, 5)))[1] == {("b", "Nim, player 1, random"): "0.300 ± 0.000 (<0.001)"}


def test_where_there_is_nothing_of_that_kind_nothing_is_compared() -> None:
    rows = [{"arm": arm, "seed": seed, "Nim, optimal moves": 0.5} for arm in ("a", "b") for seed in (0, 1)]
    assert differences(rows_result(rows, (0, 1))) == ("", {})


def test_of_one_arm_or_one_seed_nothing_is_said() -> None:
    rows = [{"arm": arm, "seed": seed, "NashConv, mean": 0.1} for arm in ("a", "b") for seed in (0, 1)]
    assert differences(rows_result(rows[:2], (0, 1))) == differences(rows_result(rows[::2], (0,))) == ("", {})


def runs_result(**runs: tuple[list[str], dict[str, float]]) -> Result:
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
        runs_result(
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
    assert [line[7].split(":")[0] for line in lines] == ["open", "not judged"]


@pytest.mark.parametrize(("won", "verdict"), [(0.30, "missed"), (0.44, "open"), (0.46, "open"), (0.60, "reached")])
def test_a_target_is_reached_or_missed_where_the_whole_interval_is(won: float, verdict: str) -> None:
    measured = {"Nim": won, "TicTacToe": 0.5}
    page = shared_policy(runs_result(both=(["Nim", "TicTacToe"], measured), nim=(["Nim"], {"Nim": 0.5})))
    assert f"| {verdict} |" in page


def test_arms_that_play_the_same_have_no_such_table() -> None:
    assert shared_policy(runs_result(first=(["Nim"], {"Nim": 0.5}), other=(["Nim"], {"Nim": 0.6}))) == ""
    assert shared_policy(runs_result(both=(["Nim", "KuhnPoker"], {"Nim": 0.5, "KuhnPoker": 0.5}))) == ""


def test_a_means_interval_is_that_of_independent_shares() -> None:
    assert mean([(0.5, 0.4, 0.7), (0.3, 0.2, 0.4)]) == pytest.approx(
        (0.4, 0.4 - hypot(0.1, 0.1) / 2, 0.4 + hypot(0.2, 0.1) / 2)
    )


def test_a_ratios_interval_is_that_of_its_parts_where_one_is_known() -> None:
    assert ratio((0.4, 0.3, 0.5), (0.5, 0.5, 0.5)) == pytest.approx((0.8, 0.6, 1.0))
    assert ratio((0.5, 0.5, 0.5), (0.4, 0.32, 0.5)) == pytest.approx((1.25, 1.0, 0.5 / 0.32))


def test_a_ratio_to_a_share_that_may_be_zero_is_not_given() -> None:
    assert ratio((0.4, 0.3, 0.5), (0.0, 0.0, 0.1)) is None


def test_the_ratio_of_what_is_known_is_known() -> None:
    """Also where rounding makes the square root's content negative."""
    rng = Random(1)
    for first, second in ((rng.random(), rng.random()) for _ in range(200)):
        quotient = ratio((first, first, first), (second, second, second))
        assert quotient == pytest.approx((first / second,) * 3, rel=1e-6)


def test_a_ratios_interval_holds_it_as_often_as_it_says() -> None:
    rng, games, held = Random(0), 512, 0
    for _ in range(1000):
        estimates = []
        for share in (0.55, 0.6):
            count = sum(rng.random() < share for _ in range(games))
            estimates.append((count / games, *wilson(count, games)))
        quotient = ratio(estimates[0], estimates[1])
        _, low, high = quotient if quotient is not None else (0.0, inf, -inf)
        held += low <= 0.55 / 0.6 <= high
    assert 0.93 <= held / 1000 <= 0.97
