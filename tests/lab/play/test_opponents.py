"""Whom a name or a path means, and what is said where it means nobody."""

from __future__ import annotations

import asyncio
import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.play import sampling
from recipe.spiral.lab.play.playing import Table, play_game
from recipe.spiral.lab.play.seats_taken import Opponent, Wish, find
from recipe.spiral.match import Rules
from recipe.spiral.rollouts.end_tokens import end_tokens
from recipe.spiral.storage.checkpoints import EXPORTED
from tests.lab.play.faces import KEY, Shown


@pytest.fixture
def wish(tmp_path: Path) -> Wish:
    return Wish(tmp_path / "weights")


@pytest.fixture(scope="module")
def tiny() -> Path:
    return embedded("tiny", ["TicTacToe", "KuhnPoker"], "chat")


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
    player: Any = opponent.make(lambda tokens: None)
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
def test_a_name_is_an_opponent(game: str, model: str | None, name: str, wish: Wish) -> None:
    opponent = find(game, model, wish)
    assert opponent.name.startswith(name.split("(")[0])
    assert opponent.rules == Rules()


def test_a_run_is_its_latest_snapshot_with_the_runs_rules_and_sampling(run: Path, wish: Wish) -> None:
    opponent = find("TicTacToe", str(run), wish)
    assert opponent.name == "my_run/step_000040"
    assert opponent.rules == Rules((-1.0, 1.0), "read", 6)
    expected = {"temperature": 0.5, "top_p": 0.9, "top_k": 3, "max_tokens": 12, "prompt_length": 300}
    assert settings(opponent) == expected


@pytest.mark.parametrize(
    ("folder", "name"), [(b"m\xff", "m\\udcff"), (b"\x1b[31mred\nline", "\\x1b[31mred ... (5 more characters)")]
)
def test_a_folders_name_is_made_harmless(folder: bytes, name: str, tiny: Path, tmp_path: Path, wish: Wish) -> None:
    path = shutil.copytree(tiny, tmp_path / os.fsdecode(folder))
    assert find("TicTacToe", str(path), wish).name == name


def test_an_exported_model_plays_by_its_runs_rules(run: Path, tiny: Path, tmp_path: Path, wish: Wish) -> None:
    exported = shutil.copytree(tiny, tmp_path / "my-model")
    shutil.copyfile(run / "config.yaml", exported / EXPORTED)
    opponent = find("TicTacToe", str(exported), wish)
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


def test_a_pools_member_has_its_runs_tokenizer(run: Path, tiny: Path, wish: Wish) -> None:
    as_a_run_writes_them(run, tiny)
    table = Table("TicTacToe", "member", 1, Rules())
    player = find("TicTacToe", str(run), wish).make(lambda tokens: None)
    finished = asyncio.run(play_game(table, player, Shown(lambda position: position.game.legal_actions()[0]), KEY))
    tokens = finished.record.turns[0].tokens
    assert tokens is not None
    assert finished.record.turns[0].action in (f"[{square}]" for square in range(9))
    assert tokens.response_ids[-1] in end_tokens(tiny)


@pytest.mark.parametrize("named", ["", "pool/step_000040"])
@pytest.mark.parametrize("engine", ["transformers", "vllm"])
def test_a_pools_member_ends_where_its_runs_model_does(
    named: str, engine: str, run: Path, tiny: Path, wish: Wish, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started_from = shutil.copytree(tiny, tmp_path / "started-from")
    (started_from / "generation_config.json").write_text('{"eos_token_id": [5, 7]}')
    as_a_run_writes_them(run, started_from)
    ends: list[Any] = []
    monkeypatch.setattr(sampling, "Transformers", lambda *given: ends.append(given[2]) or SimpleNamespace(generate=0))
    monkeypatch.setattr(
        sampling,
        "start_vllm",
        lambda *given: ends.append(end_tokens(given[4])) or SimpleNamespace(generate_as=lambda *_: 0),
    )
    find("TicTacToe", str(run / named), replace(wish, engine=engine)).make(lambda tokens: None)
    assert ends == [end_tokens(started_from)] and ends[0] > {5, 7}


def test_another_step_is_named_after_an_at_sign(run: Path, wish: Wish) -> None:
    assert find("TicTacToe", f"{run}@20", wish).name == "my_run/step_000020"
    with pytest.raises(ValueError, match=r"step=21: there is none; the next is of step 40"):
        find("TicTacToe", f"{run}@21", wish)
    with pytest.raises(ValueError, match="a step is a number"):
        find("TicTacToe", f"{run}@last", wish)


def test_a_folder_with_an_at_sign_is_a_folder(run: Path, wish: Wish) -> None:
    renamed = run.rename(run.with_name("mail@home"))
    assert find("TicTacToe", str(renamed), wish).name == "mail@home/step_000040"


def test_what_the_person_wishes_wins(run: Path, wish: Wish) -> None:
    wish = Wish(wish.cache, temperature=0.0, response_length=7)
    found = settings(find("TicTacToe", str(run), wish))
    assert (found["temperature"], found["max_tokens"]) == (0.0, 7)


def test_a_models_folder_plays_by_the_usual_rules(tiny: Path, tmp_path: Path, wish: Wish) -> None:
    folder = shutil.copytree(tiny, tmp_path / "mine")
    opponent = find("KuhnPoker", str(folder), wish)
    assert (opponent.name, opponent.rules) == ("mine", Rules())
    finished = asyncio.run(
        play_game(
            Table("KuhnPoker", opponent.name, 1, opponent.rules),
            opponent.make(lambda tokens: None),
            Shown(lambda position: position.game.legal_actions()[0]),
            KEY,
        )
    )
    tokens = finished.record.turns[0].tokens
    assert tokens is not None
    assert tokens.answered_by == "mine"
    assert len(tokens.log_probs or ()) == len(tokens.response_ids)


def test_tiny_in_a_game_that_it_does_not_know_is_said(wish: Wish) -> None:
    assert "has only learned to read TicTacToe and KuhnPoker" in find("Nim", "tiny", wish).note
    assert find("TicTacToe", "tiny", wish).note == ""


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("tinny", "no opponent of that name; did you mean tiny?"),
        ("perfekt", "did you mean perfect?"),
        ("{tmp}/outputs/my_rum", "did you mean {tmp}/outputs/my_run?"),
        ("{tmp}/outputs/nothing_like_it", "there is no such folder"),
        ("{tmp}/outputs/nothing@3", "there is no such folder"),
        ("{tmp}/outputs", "holds nothing to play against"),
        ("{tmp}/outputs/my_run/config.yaml", "is no folder"),
        ("{tmp}/outputs/my_run/pool/step_000020@3", "is no run; leave the step out"),
    ],
)
def test_what_is_no_opponent_is_said_with_the_nearest(
    model: str, message: str, run: Path, wish: Wish, tmp_path: Path
) -> None:
    with pytest.raises(ValueError) as refused:
        find("TicTacToe", model.format(tmp=tmp_path), wish)
    assert message.format(tmp=tmp_path) in str(refused.value)


def test_a_game_that_an_opponent_does_not_play_is_refused(wish: Wish) -> None:
    with pytest.raises(ValueError, match="perfect player; the games that have one are"):
        find("LiarsDice", "perfect", wish)


def test_damaged_weights_are_refused(tiny: Path, tmp_path: Path, wish: Wish) -> None:
    folder = shutil.copytree(tiny, tmp_path / "mine")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="is not whole"):
        find("TicTacToe", str(folder), wish)


@pytest.mark.parametrize("text", ["", "{}", '{"version": "1.0", "model": 3}'])
def test_a_broken_tokenizer_is_refused_when_it_is_loaded(text: str, tiny: Path, tmp_path: Path, wish: Wish) -> None:
    folder = shutil.copytree(tiny, tmp_path / "mine", ignore=shutil.ignore_patterns("manifest.json"))
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(ValueError, match=r"transformers reads no tokenizer there|makes no prompt"):
        find("TicTacToe", str(folder), wish).make(lambda tokens: None)


@pytest.mark.parametrize("kwargs", ["[1, 2]", "{tokenizer: 1}", "{messages: 1}", "{tokenize: false}"])
def test_settings_of_a_chat_template_that_make_no_prompt_are_said(
    tiny: Path, tmp_path: Path, wish: Wish, kwargs: str
) -> None:
    folder = shutil.copytree(tiny, tmp_path / "mine")
    (folder / EXPORTED).write_text(f"data: {{apply_chat_template_kwargs: {kwargs}}}\n")
    with pytest.raises(ValueError, match=r"makes no prompt with the template 'chat'"):
        find("TicTacToe", str(folder), wish).make(lambda tokens: None)


def test_a_tokenizer_without_a_chat_template_is_told_of_the_option(tiny: Path, tmp_path: Path, wish: Wish) -> None:
    folder = shutil.copytree(tiny, tmp_path / "mine", ignore=shutil.ignore_patterns("manifest.json", "*.jinja"))
    with pytest.raises(ValueError, match=r"makes no prompt with the template 'chat'.*another --template"):
        find("TicTacToe", str(folder), wish).make(lambda tokens: None)
    plain = Wish(wish.cache, template="octothinker")
    assert find("TicTacToe", str(folder), plain).make(lambda tokens: None)
