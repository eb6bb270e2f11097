"""Whom a name or a path means, what is said where it means nobody, and that a model's responses are its own."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.games import make
from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.play.table_opponent import Transformers, find
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Generation, Position
from recipe.spiral.players.prompts import encoder
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.storage.run_files import EXPORTED

USUAL = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "max_tokens": 16}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "weights"


@pytest.fixture(scope="module")
def tiny() -> Path:
    return embedded("tiny", ["TicTacToe", "KuhnPoker"])


@pytest.fixture(scope="module")
def model(tiny: Path) -> Transformers:
    return Transformers(tiny, None, end_tokens(tiny), "tiny")


@pytest.fixture(scope="module")
def prompt(tiny: Path) -> list[int]:
    from transformers import AutoTokenizer

    encode = encoder(AutoTokenizer.from_pretrained(tiny), "chat", "state")
    return encode(make("TicTacToe", 0).observation(0), ())


@pytest.fixture
def run(tmp_path: Path, tiny: Path) -> Path:
    """A run with rules of its own, whose pool has models of two steps, as a run writes them: weights and a config."""
    folder = tmp_path / "outputs" / "my_run"
    for step in (20, 40):
        member = folder / "pool" / f"step_{step:06d}"
        member.mkdir(parents=True)
        for name in ("config.json", "model.safetensors"):
            shutil.copyfile(tiny / name, member / name)
    config: dict[str, Any] = {
        "run_dir": str(folder),
        "rules": {"illegal_rewards": [-1, 1], "truncated": "read", "turn_cap": 6},
        "prompt": {"template": "chat", "style": "state"},
        "data": {"max_prompt_length": 300, "max_response_length": 12},
        "actor_rollout_ref": {"model": {"path": str(tiny)}, "rollout": {"temperature": 0.5, "top_p": 0.9, "top_k": 3}},
    }
    OmegaConf.save(OmegaConf.create(config), folder / "config.yaml")
    return folder


def settings(player: Any) -> dict[str, Any]:
    return {**player.sampling, "prompt_length": player.prompt_length}


@pytest.mark.parametrize(
    ("game", "model", "name"),
    [
        ("TicTacToe", None, "tiny"),
        ("Nim", None, "random"),
        ("Nim", "perfect", "perfect"),
        ("ConnectFour", "alphabeta", "alphabeta"),
        ("KuhnPoker", "tiny", "tiny"),
    ],
)
def test_a_name_is_an_opponent(game: str, model: str | None, name: str, cache: Path) -> None:
    opponent, rules = find(game, model, cache)
    assert opponent.name.startswith(name)
    assert rules == Rules()


def test_a_run_is_its_latest_snapshot_with_the_runs_rules_sampling_and_tokenizer(run: Path, cache: Path) -> None:
    opponent, rules = find("TicTacToe", str(run), cache)
    assert opponent.name == "my_run/step_000040"
    assert rules == Rules((-1.0, 1.0), "read", 6)
    expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 12, "prompt_length": 300}
    assert settings(opponent) == expected
    assert find("TicTacToe", f"{run}@20", cache)[0].name == "my_run/step_000020"
    game = make("TicTacToe", 0)
    position = Position(GameKey("human", 5, 0, 0), game, 0, 0, game.observation(0))
    assert "\\boxed{" in asyncio.run(opponent.respond(position)).text


def test_an_exported_model_plays_by_its_runs_rules(run: Path, tiny: Path, tmp_path: Path, cache: Path) -> None:
    exported = shutil.copytree(tiny, tmp_path / "my-model")
    shutil.copyfile(run / "config.yaml", exported / EXPORTED)
    opponent, rules = find("TicTacToe", str(exported), cache, temperature=0.25)
    assert (opponent.name, rules) == ("my-model", Rules((-1.0, 1.0), "read", 6))
    found = settings(opponent)
    assert (found["top_k"], found["max_tokens"], found["temperature"]) == (3, 12, 0.25)


@pytest.mark.parametrize(
    "model",
    ["tinny", "{tmp}/outputs/my_rum", "{tmp}/outputs/nothing@3", "{tmp}/outputs", "{tmp}/outputs/my_run/config.yaml"],
)
def test_what_is_no_opponent_is_refused(model: str, run: Path, cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"MODEL"):
        find("TicTacToe", model.format(tmp=tmp_path), cache)


# -- a model's responses -----------------------------------------------------------------------------------------------


def answer(model: Transformers, prompt: list[int], seed: int = 0, **settings: Any) -> Generation:
    return asyncio.run(model.generate(prompt, {**USUAL, "seed": seed, **settings}))


def test_the_seed_decides_and_nothing_else(model: Transformers, prompt: list[int]) -> None:
    import torch

    state = torch.get_rng_state()
    first = answer(model, prompt, 11)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert answer(model, prompt, 11) == first
    assert len({tuple(answer(model, prompt, seed).tokens.response_ids) for seed in range(20)}) > 3
    assert answer(model, prompt, 1, temperature=0) == answer(model, prompt, 2, temperature=0)


def test_a_response_ends_at_an_end_token_or_at_the_limit(tiny: Path, model: Transformers, prompt: list[int]) -> None:
    whole = answer(model, prompt)
    assert whole.tokens.response_ids[-1] in end_tokens(tiny)
    assert not whole.truncated
    cut = answer(model, prompt, max_tokens=2)
    assert cut.tokens.response_ids == whole.tokens.response_ids[:2]
    assert cut.truncated
