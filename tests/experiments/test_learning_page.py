"""What the page of an experiment on learning compares, and what its intervals are over."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import pages
from experiments.curve_points import Point
from experiments.learning import Run, gather, plan
from experiments.learning_page import OWN_PAST, WORST_PAST
from experiments.result import Curve
from tests.experiments.test_composed import made_model
from tests.experiments.test_learning import config


def test_a_reference_that_moves_in_some_arms_only_is_not_compared(tmp_path: Path) -> None:
    arms = {"moves": ["ref_update_freq=10"], "stays": []}
    overrides = ["--config-dir", "config", "+experiment=kuhn"]
    settings = config(tmp_path, arms=arms, overrides=overrides, targets=[], name="regularised", loop="quick")

    def curve(run: Run) -> Curve:
        shown = {"NashConv": 0.2, "NashConv as judged": 0.2, "illegal": 0.0, "illegal, worst": 0.0}
        if run.arm == "moves":
            shown["NashConv of the reference"] = 0.1
        points = [Point(step, step * 128, shown) for step in (0, 10, 20)]
        return Curve(points, {OWN_PAST: 0.0, WORST_PAST: 0.0}, {"KuhnPoker": 0.1}, 60.0)

    runs = plan(settings)
    result = gather(runs, list(map(curve, runs)), settings, "python -m it", ["0123"])
    assert not any("reference" in name for row in result.rows for name in row)
    result.write(tmp_path / "docs")
    pages.regenerate(tmp_path / "docs")
    text = (tmp_path / "docs" / "regularised.md").read_text()
    assert "| moves | 0.200 ± 0.000 |" in text and "in a table" not in text


def test_intervals_are_over_warm_starts_not_over_the_seeds_of_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wins of 0.5 and 0.7 from one warm start are one value of 0.6, beside the other's 0.8: 0.7 ± 1.271."""
    monkeypatch.setattr("recipe.spiral.lab.models.tiny.ensure", made_model)
    overrides = ["--config-dir", "config", "+experiment=tictactoe", "opponents=[]"]
    settings = config(tmp_path, overrides=overrides, warm_starts=[0, 1], targets=[], name="tictactoe", loop="quick")

    def curve(run: Run) -> Curve:
        win = 0.6 + 0.2 * (run.start or 0) + (0.1 if run.seed else -0.1)
        shares = {"win": win, "draw": 0.0, "loss": 1 - win, "invalid": 0.0}
        roles = ("TicTacToe, player 0, random", "TicTacToe, player 1, random")
        measures = {f"{role}: {end}": share for role in roles for end, share in shares.items()}
        return Curve([Point(step, step, measures) for step in (0, 20)], {OWN_PAST: win, WORST_PAST: win}, {}, 60.0)

    runs = plan(settings)
    text = pages.page(gather(runs, list(map(curve, runs)), settings, "python -m it", ["0123"]))
    assert "70.0% → 70.0% ± 127.1%" in text
    assert "against the best of it: self-play 0.700 ± 1.271, 0.700 ± 1.271." in text
