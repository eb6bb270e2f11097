"""Which extension is asked: a user's before ours, wherever the config names it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral import extensions, main_spiral
from recipe.spiral.lab.extension import Extension as Lab
from recipe.spiral.opponents.league import League, given
from recipe.spiral.rollouts.dataset import asked
from recipe.spiral.spin.extension import Extension as Spin
from tests.made_configs import config

BUDGETS, MEMBERS, QUESTIONS = (
    extensions.Budgets(),
    [extensions.Given("mine", Path("a"), None, print)],
    SimpleNamespace(),
)


class Mine(extensions.Extension):
    def __init__(self) -> None:
        self.seen: Any = None

    def model(self, config: Any) -> Path | None:
        return Path("/mine") if config.embedded_model == "mine" else None

    def budgets(self, config: Any) -> extensions.Budgets | None:
        return BUDGETS

    def given(self, entry: Any, setting: str) -> Any:
        return MEMBERS if entry["path"] == "/nowhere/of/mine" else None

    def questions(self, config: Any, seed: int) -> Any:
        self.seen = config
        return QUESTIONS


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> Mine:
    """Named last, as in docs/extensions.md."""
    mine = Mine()
    monkeypatch.setattr(extensions, "loaded", lambda: (Lab(), Spin(), mine))
    monkeypatch.setattr("recipe.spiral.rollouts.dataset.loaded", lambda: (Lab(), Spin(), mine))
    return mine


def test_a_users_extension_is_asked_before_ours(mine: Mine, tmp_path: Path) -> None:
    made = config(tmp_path, "embedded_model=mine")
    main_spiral.provide_model(made)
    assert made.actor_rollout_ref.model.path == "/mine"
    assert League(made).budgets is BUDGETS
    assert given({"path": "/nowhere/of/mine"}) is MEMBERS


def test_what_is_not_a_users_is_ours(mine: Mine, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no such folder"):
        given({"path": "/nowhere"})


def test_questions_are_asked_by_one_extension(mine: Mine, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = "recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks.ValidationBenchmarks"
    monkeypatch.setattr(ours, lambda entries, seed: entries)
    data = OmegaConf.create({"validation": {"benchmarks": []}, "run_seed": 3})
    assert asked(data, 3) is QUESTIONS and mine.seen is data
    data.validation.benchmarks = ["math500"]
    with pytest.raises(ValueError, match="several ask questions in validation"):
        asked(data, 3)
