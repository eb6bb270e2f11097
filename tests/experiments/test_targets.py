"""Targets: where and by what a run is judged, also a run that is too short."""

from __future__ import annotations

import pytest

from experiments.targets import running_mean, value_at
from experiments.text import spread


def test_the_mean_is_over_the_last_games_and_a_target_is_judged_where_it_stands() -> None:
    curve = [{"games": 1000.0 * k, "NashConv": 1.0 / k} for k in range(1, 6)]
    assert running_mean(curve, "NashConv", 2000)[-1] == pytest.approx((1 / 4 + 1 / 5) / 2)
    target = {"measure": "NashConv", "games": 3500, "at_most": 0.5, "of": "last"}
    assert value_at(curve, target, 2000) == pytest.approx(1 / 3)
    assert value_at(curve, {**target, "of": "mean"}, 2000) == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert value_at(curve, {**target, "games": 5900}, 2000) == pytest.approx(1 / 5), "the next checkpoint is beyond it"
    assert value_at(curve, {**target, "games": 6000}, 2000) is None, "the next checkpoint is not"
    assert value_at(curve, {**target, "games": 7000}, 2000) is None
    assert spread([0.5]) == "0.500" and spread([0.4, 0.5, 0.6]) == "0.500 ± 0.248"


def test_the_worst_mean_is_the_worst_on_the_way() -> None:
    curve = [{"games": 1000.0 * k, "illegal": value} for k, value in enumerate((0.0, 0.3, 0.1, 0.0, 0.0, 0.9), 1)]
    target = {"measure": "illegal", "games": 5000, "at_most": 0.02, "of": "worst mean"}
    assert value_at(curve, target, 2000) == pytest.approx((0.3 + 0.1) / 2), "not the single point, nor what comes later"
    assert value_at(curve, {**target, "of": "mean"}, 2000) == 0
    early = [{"games": 0.0, "illegal": 0.9}, *curve]
    assert value_at(early, target, 2000) == pytest.approx((0.3 + 0.1) / 2), "of less than 2,000 games there is no mean"
    least = {"measure": "illegal", "games": 5000, "at_least": 0.0, "of": "worst mean"}
    assert value_at(curve, least, 2000) == 0
