"""A model that is not whole, or that the games' prompts do not fit, is refused before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from jinja2 import TemplateError
from omegaconf import DictConfig

from recipe.spiral.checks import check
from recipe.spiral.checks.prompts_fit import PLAYOUTS, check_model, check_prompts
from recipe.spiral.games import make
from recipe.spiral.match import Rules
from recipe.spiral.players.player import RandomPlayer
from recipe.spiral.players.prompts import History, encoder
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.manifest import write_manifest
from tests.made import run_match
from tests.made_configs import config, without_weights


class WordTokenizer:
    """One token a word."""

    chat_template: str | None = None
    eos_token_id, pad_token_id = 1, None

    def __init__(self, token: int = 0) -> None:
        self.token = token

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [self.token] * len(text.split())

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
        return [token for message in conversation for token in self.encode(message["content"])]


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WordTokenizer:
    """What any model folder's tokenizer is taken for."""
    made = WordTokenizer()
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *args, **kwargs: made)
    (tmp_path / "model").mkdir()
    without_weights(tmp_path / "model" / "model.safetensors")
    form(tmp_path, model_type="qwen3")
    return made


def form(tmp_path: Path, **fields: Any) -> None:
    (tmp_path / "model" / "config.json").write_text(json.dumps(fields))


def with_model(tmp_path: Path, *overrides: str) -> DictConfig:
    return config(tmp_path, f"actor_rollout_ref.model.path={tmp_path / 'model'}", *overrides)


def refused(setting: str, config: DictConfig) -> None:
    with pytest.raises(ValueError, match=setting):
        check(config)
        check_model(config)


def padded(attention: str) -> list[str]:
    model = "actor_rollout_ref.model"
    return [f"{model}.use_remove_padding=false", f"{model}.override_config.attn_implementation={attention}"]


def test_attention_that_leaves_out_a_part_of_the_model_is_refused(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    """The logits' bound of one, and of others the sinks or a class of their own."""
    for kind in ("gemma2", "gpt_oss", "nemotron"):
        form(tmp_path, model_type=kind)
        refused("attn_implementation=spiral_packed", with_model(tmp_path))
        check_model(with_model(tmp_path, *padded("eager")))


@pytest.mark.parametrize("kind", ["bamba", "qwen3_next", "qwen3_5_text", "llama4_text"])
def test_layers_that_look_over_the_end_of_a_turn_are_refused_where_turns_are_packed(
    tmp_path: Path, tokenizer: WordTokenizer, kind: str
) -> None:
    form(tmp_path, model_type=kind)
    refused("use_remove_padding=true", with_model(tmp_path))
    check_model(with_model(tmp_path, *padded("sdpa")))
    if kind == "qwen3_5_text":  # verl tells them where turns begin
        check_model(with_model(tmp_path, f"{padded('flash_attention_2')[1]}"))


def test_the_model_must_read_all_that_the_engine_may_give_it(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    form(tmp_path, model_type="qwen3", max_position_embeddings=512)
    check_model(with_model(tmp_path))
    refused("max_model_len=513", with_model(tmp_path, "actor_rollout_ref.rollout.max_model_len=513"))


def test_a_model_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(name: str, allow_patterns: list[str]) -> str:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    for path in ("/nowhere", "some/model/here", "Qwen3", tmp_path):
        refused("model.path=", config(tmp_path, f"actor_rollout_ref.model.path={path}"))
    refused("model=tiny", config(tmp_path, model="hf"))


def test_weights_must_be_whole(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    """Missing, a pointer of Git LFS, or changed since a manifest was written."""
    check_model(with_model(tmp_path))
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    refused(r"model\.path: .*model\.safetensors", with_model(tmp_path))
    weights.unlink()
    refused(r"model\.path: .*missing", with_model(tmp_path))
    without_weights(weights)
    (weights.parent / "tokenizer.json").write_text("{}")
    write_manifest(weights.parent)
    check_model(with_model(tmp_path))
    weights.write_bytes(weights.read_bytes()[:-1] + b" ")
    refused("model.path", with_model(tmp_path))


@pytest.mark.parametrize("token", [1000, 999])
def test_every_token_has_weights(tmp_path: Path, tokenizer: WordTokenizer, token: int) -> None:
    form(tmp_path, model_type="qwen3", vocab_size=1000)
    tokenizer.token = token
    if token == 999:
        check_model(with_model(tmp_path))
    else:
        refused(r"model\.path=.*token 1000", with_model(tmp_path))


def longest(game_id: str, template: str = "chat", style: str = "state", cap: int | None = None) -> int:
    """The longest prompt of a game's playouts, in words."""
    most = 0
    for seed in range(PLAYOUTS):
        record = run_match(make(game_id, seed), [RandomPlayer()] * 2, Rules(turn_cap=cap), GameKey("check", 0, 0, seed))
        for player in (0, 1):
            history: History = ()
            for turn in record.turns_of(player):
                encode = encoder(WordTokenizer(), template, style)
                most = max(most, len(encode(turn.observation, history)))
                assert turn.action is not None
                history += ((turn.observation, turn.action),)
    return most


@pytest.mark.parametrize(
    ("overrides", "needed"),
    [
        (["games=[TicTacToe]"], longest("TicTacToe")),
        (["games=[TicTacToe]", "prompt.style=dialogue"], longest("TicTacToe", style="dialogue")),
        (["games=[{id: TicTacToe, style: state}]", "prompt.style=dialogue"], longest("TicTacToe")),
        (
            ["games=[Nim]", "validation.games=[{id: TicTacToe, style: dialogue, template: octothinker}]"],
            longest("TicTacToe", "octothinker", "dialogue"),
        ),
        (
            ["games=[TicTacToe]", "prompt.style=dialogue", "rules.turn_cap=3"],
            longest("TicTacToe", style="dialogue", cap=3),
        ),
    ],
    ids=str,
)
def test_prompts_are_measured_in_their_games_template_and_style(
    tmp_path: Path, tokenizer: WordTokenizer, overrides: list[str], needed: int
) -> None:
    check_model(with_model(tmp_path, *overrides, f"data.max_prompt_length={needed}"))
    shorter = with_model(tmp_path, *overrides, f"data.max_prompt_length={needed - 1}")
    refused(rf"data\.max_prompt_length={needed - 1}: TicTacToe .* {needed} ", shorter)


def test_a_chat_template_keeps_what_a_player_sees_and_in_a_dialogue_what_it_answered(tmp_path: Path) -> None:
    class Deaf(WordTokenizer):
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
            return [0]

    class Forgetful(WordTokenizer):
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
            return super().apply_chat_template([message for message in conversation if message["role"] == "user"])

    class OneTurn(WordTokenizer):
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
            if len(conversation) > 1:
                raise TemplateError("one turn only")
            return super().apply_chat_template(conversation)

    setup = config(tmp_path, "actor_rollout_ref.model.path=some/model", "games=[{id: Nim, style: dialogue}]")
    for kind, setting in ((Deaf, "template=chat"), (Forgetful, "style=dialogue"), (OneTurn, "style=dialogue")):
        with pytest.raises(ValueError, match=setting):
            check_prompts(setup, kind())
    setup.games = ["Nim"]
    check_prompts(setup, Forgetful())
    check_prompts(setup, OneTurn())
