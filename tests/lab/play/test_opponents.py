"""Whom a name or a path means, and what is said where it means nobody."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.play.playing import Table, play_game
from recipe.spiral.lab.play.seats_taken import Opponent, find
from recipe.spiral.match import Rules
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.storage.run_files import EXPORTED
from tests.lab.play.faces import KEY, Shown


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "weights"


@pytest.fixture(scope="module")
def tiny() -> Path:
    return embedded("tiny", ["TicTacToe", "KuhnPoker"])


@pytest.fixture
def run(tmp_path: Path, tiny: Path) -> Path:
    """A run with rules of its own, whose pool has models of two steps."""
    folder = tmp_path / "outputs" / "my_run"
    for step in (20, 40):
        shutil.copytree(tiny, folder / "pool" / f"step_{step:06d}")
    config: dict[str, Any] = {
        "run_dir": str(folder),
        "rules": {"illegal_rewards": "loss", "truncated": "read", "turn_cap": 6},
        "prompt": {"template": "chat", "style": "state"},
        "data": {"max_prompt_length": 300, "max_response_length": 12},
        "actor_rollout_ref": {"rollout": {"temperature": 0.5, "top_p": 0.9, "top_k": 3}},
    }
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    return folder


def settings(opponent: Opponent) -> dict[str, Any]:
    player: Any = opponent.make()
    return {**player.sampling, "prompt_length": player.prompt_length}


@pytest.mark.parametrize(
    ("game", "model", "name"),
    [
        ("TicTacToe", None, "tiny"),
        ("Nim", None, "random"),
        ("Nim", "perfect", "perfect"),
        ("ConnectFour", "alphabeta", "alphabeta(2)"),
        ("KuhnPoker", "tiny", "tiny"),
    ],
)
def test_a_name_is_an_opponent(game: str, model: str | None, name: str, cache: Path) -> None:
    opponent = find(game, model, cache)
    assert opponent.name.startswith(name.split("(")[0])
    assert opponent.rules == Rules()


def test_a_run_is_its_latest_snapshot_with_the_runs_rules_and_sampling(run: Path, cache: Path) -> None:
    opponent = find("TicTacToe", str(run), cache)
    assert opponent.name == "my_run/step_000040"
    assert opponent.rules == Rules((-1.0, 1.0), "read", 6)
    expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 12, "prompt_length": 300}
    assert settings(opponent) == expected


def test_an_exported_model_plays_by_its_runs_rules(run: Path, tiny: Path, tmp_path: Path, cache: Path) -> None:
    exported = shutil.copytree(tiny, tmp_path / "my-model")
    shutil.copyfile(run / "config.yaml", exported / EXPORTED)
    opponent = find("TicTacToe", str(exported), cache)
    assert (opponent.name, opponent.rules) == ("my-model", Rules((-1.0, 1.0), "read", 6))
    assert settings(opponent)["top_k"] == 3 and settings(opponent)["max_tokens"] == 12


def as_a_run_writes_them(run: Path, started_from: Path) -> None:
    """Members of a pool: weights and a config."""
    for member in (run / "pool").iterdir():
        for file in member.iterdir():
            if file.name not in ("config.json", "model.safetensors"):
                file.unlink()
    config = OmegaConf.load(run / "config.yaml")
    OmegaConf.update(config, "actor_rollout_ref.model.path", str(started_from), force_add=True)
    OmegaConf.save(config, run / "config.yaml")


def test_a_pools_member_has_its_runs_tokenizer(run: Path, tiny: Path, cache: Path) -> None:
    as_a_run_writes_them(run, tiny)
    table = Table("TicTacToe", "member", 1, Rules())
    player = find("TicTacToe", str(run), cache).make()
    finished = asyncio.run(play_game(table, player, Shown(lambda position: position.game.legal_actions()[0]), KEY))
    tokens = finished.record.turns[0].tokens
    assert tokens is not None
    assert finished.record.turns[0].action in (f"[{square}]" for square in range(9))
    assert tokens.response_ids[-1] in end_tokens(tiny)


@pytest.mark.parametrize(
    "model",
    ["tinny", "{tmp}/outputs/my_rum", "{tmp}/outputs/nothing@3", "{tmp}/outputs", "{tmp}/outputs/my_run/config.yaml"],
)
def test_what_is_no_opponent_is_refused(model: str, run: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"MODEL"):
        find("TicTacToe", model.format(tmp=tmp_path), cache)
