"""What is asked of extensions, and that one which adds nothing may answer."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral import extensions
from recipe.spiral.opponents.fixed_opponents import kinds, make_player
from recipe.spiral.players.player import RandomPlayer


class Mine(extensions.Extension):
    """Opponents that note something in the run's folder, and an objective."""

    def opponents(self) -> dict[str, extensions.Kind]:
        return {"mine": extensions.Kind(lambda run_dir, depth=1: Noting(run_dir, depth), lambda game: None)}

    def objectives(self) -> dict[str, extensions.ObjectiveKind]:
        return {"dpo": extensions.ObjectiveKind(lambda config: "mine", lambda loss: loss)}  # type: ignore[arg-type]


class Noting(RandomPlayer):
    def __init__(self, run_dir: str | None, depth: int) -> None:
        self.place = run_dir, depth


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Named last, as in docs/architecture.md."""
    ours = extensions.loaded()
    for module in (extensions, "recipe.spiral.opponents.fixed_opponents"):
        monkeypatch.setattr(module, "loaded", lambda: (*ours, Mine())) if module is extensions else monkeypatch.setattr(
            f"{module}.loaded", lambda: (*ours, Mine())
        )


def test_there_are_six_methods_and_each_may_add_nothing() -> None:
    nothing, config = extensions.Extension(), object()
    answers = {
        "check": nothing.check(config),
        "agent_loops": nothing.agent_loops(config),
        "opponents": nothing.opponents(),
        "objectives": nothing.objectives(),
        "watcher": nothing.watcher(config),
        "validate": nothing.validate(config, None, None),
    }
    assert answers.keys() == {name for name in vars(extensions.Extension) if not name.startswith("_")}
    assert not any(answers.values())


@pytest.mark.usefixtures("mine")
def test_what_is_named_last_comes_first() -> None:
    assert extensions.objectives()["dpo"].make(None) == "mine"
    assert {"random", "perfect", "mine"} <= {*kinds()}


@pytest.mark.usefixtures("mine")
def test_a_player_is_told_the_runs_folder(tmp_path: Path) -> None:
    player: Any = make_player("mine", {"depth": 3}, run_dir=str(tmp_path))
    assert player.place == (str(tmp_path), 3)
    assert make_player("mine").place == (None, 1)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="width"):
        make_player("mine", {"width": 3})
    with pytest.raises(ValueError, match="run_dir"):
        make_player("mine", {"run_dir": "/elsewhere"})


def test_an_extension_is_made_once_in_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(extensions.NAMES, "")
    monkeypatch.syspath_prepend(tmp_path)
    config = OmegaConf.create({"extensions": ["my_rewards"]})
    with pytest.raises(ImportError, match="my_rewards"):
        extensions.choose(config, print)
    (tmp_path / "my_rewards.py").write_text("class Extension: pass\n")
    importlib.invalidate_caches()
    [mine] = extensions.choose(config, print)
    assert [one is mine for one in extensions.loaded()] == [True], "so that it may remember something"
    del sys.modules["my_rewards"]
