"""A model that is not there, or that the games' prompts do not fit, is refused before anything starts."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from omegaconf import DictConfig, OmegaConf

from recipe.spiral.checks import ConfigError, check_model
from recipe.spiral.checks.prompts_fit import PLAYOUTS, check_prompts
from recipe.spiral.games import make
from recipe.spiral.games.nim import Nim
from recipe.spiral.lab.evaluation.benchmarks import validation_benchmarks
from recipe.spiral.match import Rules
from recipe.spiral.players.prompts import History, encoder, get_template
from recipe.spiral.players.random_player import RandomPlayer
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.manifest import write_manifest
from tests.chat_forms import tokenizer as form
from tests.made import run_match
from tests.made_configs import config


class WordTokenizer:
    """One token a word."""

    chat_template: str | None = None

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * len(text.split())

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
        if self.error is not None:
            raise self.error
        return [token for message in conversation for token in self.encode(message["content"])]


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> WordTokenizer:
    """What any model folder's tokenizer is taken for."""
    import transformers

    made = WordTokenizer()
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *args, **kwargs: made)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "qwen3"}))
    return made


def with_model(tmp_path: Path, *overrides: str) -> DictConfig:
    return config(tmp_path, f"actor_rollout_ref.model.path={tmp_path / 'model'}", *overrides)


def test_attention_that_leaves_out_a_part_of_the_model_is_refused(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "gemma2"}))
    with pytest.raises(ConfigError, match=r"=spiral_packed: leaves out .* attn_logit_softcapping=50"):
        check_model(with_model(tmp_path))
    check_model(with_model(tmp_path, "actor_rollout_ref.model.override_config.attn_implementation=eager"))


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        ({"model_type": "lfm2", "num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}, "conv"),
        ({"model_type": "bamba"}, "mamba"),
        ({"model_type": "qwen3_next"}, "linear_attention"),
        ({"model_type": "qwen3_5_text"}, "linear_attention"),
        ({"model_type": "llama4_text"}, "chunked_attention"),
    ],
)
def test_layers_that_look_over_the_end_of_a_turn_are_refused_where_turns_are_packed(
    tmp_path: Path, tokenizer: WordTokenizer, form: dict[str, Any], kind: str
) -> None:
    (tmp_path / "model" / "config.json").write_text(json.dumps(form))
    with pytest.raises(ConfigError, match=rf"use_remove_padding=true: .* layers of the kind {kind} would .*=sdpa, "):
        check_model(with_model(tmp_path))
    padded = ["model.use_remove_padding=false", "model.override_config.attn_implementation=sdpa"]
    check_model(with_model(tmp_path, *(f"actor_rollout_ref.{each}" for each in padded)))


@pytest.mark.parametrize("kind", ["gpt_oss", "nemotron"])
def test_a_model_that_takes_no_other_attention_is_refused(tmp_path: Path, tokenizer: WordTokenizer, kind: str) -> None:
    """One has sinks, and the other's attention is a class of its own."""
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": kind}))
    with pytest.raises(ConfigError, match=rf"=spiral_packed: .* this model \({kind}\) .*; take "):
        check_model(with_model(tmp_path))
    padded = ["model.use_remove_padding=false", "model.override_config.attn_implementation=eager"]
    check_model(with_model(tmp_path, *(f"actor_rollout_ref.{each}" for each in padded)))


def test_verl_tells_layers_of_qwen35_where_turns_begin(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "qwen3_5_text"}))
    check_model(with_model(tmp_path, "actor_rollout_ref.model.override_config.attn_implementation=flash_attention_2"))


def test_a_model_whose_prompts_fit_passes(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    assert check_model(with_model(tmp_path)) is tokenizer


def test_a_window_that_the_model_does_not_have_is_refused(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    folder = tmp_path / "model"
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "max_position_embeddings": 512}))
    check_model(with_model(tmp_path))
    with pytest.raises(ConfigError, match=r"max_response_length=40 is more than the 512 tokens .*: lower one of them"):
        check_model(with_model(tmp_path, "data.max_response_length=40"))
    with pytest.raises(ConfigError, match=r"rollout\.max_model_len=513: the model reads 512 tokens at most; lower it"):
        check_model(with_model(tmp_path, "actor_rollout_ref.rollout.max_model_len=513"))


@pytest.mark.parametrize("where", ["games=[Nim]", "validation.games=[Nim]"])
def test_a_prompt_that_is_too_long_is_refused(tmp_path: Path, tokenizer: WordTokenizer, where: str) -> None:
    """Nim's rules are some thirty words, TicTacToe's a little more."""
    with pytest.raises(
        ConfigError, match=r"data\.max_prompt_length=20: \w+ has prompts of \d+ tokens and more .*never cut; raise it"
    ):
        check_model(with_model(tmp_path, where, "data.max_prompt_length=20"))


def test_questions_prompts_must_fit_too(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    questions = [
        {"id": "short", "problem": "How many?", "answer": "1"},
        {"id": "long", "problem": "so " * 900, "answer": "1"},
    ]
    (tmp_path / "math500.jsonl").write_text("".join(json.dumps(question) + "\n" for question in questions))
    asked = f"validation.benchmarks=[{{id: math500, path: {tmp_path}}}]"
    validation_benchmarks.check_prompts(with_model(tmp_path, asked, "data.max_prompt_length=1000"), tokenizer)
    with pytest.raises(
        ValueError,
        match=r"=800: 1 questions of validation\.benchmarks: math500 .*question long with 9\d\d tokens; raise it",
    ):
        validation_benchmarks.check_prompts(with_model(tmp_path, asked, "data.max_prompt_length=800"), tokenizer)


def test_a_template_for_questions_that_does_not_go_with_the_model_is_named(
    tmp_path: Path, tokenizer: WordTokenizer
) -> None:
    (tmp_path / "math500.jsonl").write_text(json.dumps({"problem": "How many?", "answer": "1"}))
    asked = f"validation.benchmarks=[{{id: math500, path: {tmp_path}, template: qwen3}}]"
    plain = "prompt.template=octothinker"
    validation_benchmarks.check_prompts(with_model(tmp_path, asked, plain), tokenizer)
    tokenizer.error = ValueError("no chat template")
    with pytest.raises(
        ValueError, match=r"benchmarks: math500: template=qwen3_general does not go with .*no chat template"
    ):
        validation_benchmarks.check_prompts(with_model(tmp_path, asked, plain), tokenizer)


def test_prompts_are_measured_as_the_game_goes_on(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    """Three rounds of poker: the first prompt fits, later ones hold the earlier rounds' results."""
    from recipe.spiral.games import make

    setup = with_model(tmp_path, "games=[KuhnPoker-3]")
    first = len(get_template(setup.prompt.template).encode(tokenizer, make("KuhnPoker-3", 0).observation(0)))
    setup.data.max_prompt_length = first
    with pytest.raises(ConfigError, match=rf"data\.max_prompt_length={first}: KuhnPoker-3 has prompts of"):
        check_model(setup)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nowhere/model", r"actor_rollout_ref\.model\.path=/nowhere/model: there is no such folder"),
        (
            "{m} actor_rollout_ref.model.tokenizer_path=/nowhere",
            r"model\.tokenizer_path=/nowhere: there is no such folder",
        ),
        (
            "{m} actor_rollout_ref.model.hf_config_path=/",
            r"model\.hf_config_path=/: holds no config\.json, so it is no ",
        ),
        ("{m} actor_rollout_ref.model.lora_adapter_path={m}", r"holds no adapter_config\.json, so it is no adapter of"),
        ("./model", r"\./model: there is no such folder"),
        ("some/model/here", r"=some/model/here: there is no such folder"),
    ],
)
def test_a_model_that_is_not_there_is_refused(
    tmp_path: Path, tokenizer: WordTokenizer, path: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_model(config(tmp_path, *f"actor_rollout_ref.model.path={path}".format(m=tmp_path / "model").split()))


def test_the_hub_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not six times, which takes a minute where there is no network."""

    def download(name: str, allow_patterns: list[str]) -> str:
        raise OSError("no route")

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    with pytest.raises(ConfigError, match=r"^actor_rollout_ref\.model\.path=Qwen3: is no folder here, .*: no route$"):
        check_model(config(tmp_path, "actor_rollout_ref.model.path=Qwen3"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("target_modules: [q_proj, nope]", r"target_modules=\['q_proj', 'nope'\]: the model has no module nope"),
        ("exclude_modules: [nope]", r"exclude_modules=\['nope'\]: the model has no module nope"),
        ("target_modules: [q_proj, layers.0.mlp.up_proj], exclude_modules: '.*1.*q_proj'", ""),
    ],
)
def test_modules_that_the_model_has_not_are_refused(
    tmp_path: Path, tokenizer: WordTokenizer, settings: str, message: str
) -> None:
    """Of the policy and of a critic, before anything is built."""
    made = with_model(tmp_path, "algorithm.adv_estimator=gae", f"critic.model.path={tmp_path / 'model'}")
    OmegaConf.set_struct(made, False)
    for part in ("actor_rollout_ref", "critic"):
        asked = OmegaConf.merge(made, OmegaConf.create(f"{part}: {{model: {{lora_rank: 4, {settings}}}}}"))
        if message:
            with pytest.raises(ConfigError, match=rf"^{part}\.model\.{message}"):
                check_model(asked)
        else:
            check_model(asked)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "num_hiden_layers: 2",
            "num_hiden_layers=2: the config of this model has no num_hiden_layers; did you mean num_",
        ),
        ("hidden_size: 7", "hidden_size=7: the model has 4096; leave this out"),
        (
            "rope_parameters: {rope_theta: 5.0}",
            "rope_parameters={'rope_theta': 5.0}: the model has {.*}; leave this out, or change the config.json",
        ),
        ("attn_implementation: nope", "attn_implementation=nope: unknown; known: eager, spiral_packed, .*sdpa"),
        ("attn_implementation: null", "attn_implementation=null: unknown"),
        ("hidden_size: 4096, attention_dropout: 0.1, eos_token_id: [1, 2]", ""),
    ],
)
def test_what_cannot_change_the_models_config_is_refused(
    tmp_path: Path, tokenizer: WordTokenizer, settings: str, message: str
) -> None:
    made = with_model(tmp_path, "algorithm.adv_estimator=gae", f"critic.model.path={tmp_path / 'model'}")
    OmegaConf.set_struct(made, False)
    for part in ("actor_rollout_ref", "critic"):
        asked = OmegaConf.merge(made, OmegaConf.create(f"{part}: {{model: {{override_config: {{{settings}}}}}}}"))
        if message:
            with pytest.raises(ConfigError, match=rf"^{part}\.model\.override_config\.{message}"):
                check_model(asked)
        else:
            check_model(asked)


def test_a_part_of_the_models_config_can_be_changed(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "gemma3"}))
    made = with_model(tmp_path)
    made.actor_rollout_ref.model.override_config = {"text_config": {"attention_dropout": 0.1}}
    check_model(made)
    made.actor_rollout_ref.model.override_config = {"text_config": {"hidden_size": 7}}
    with pytest.raises(ConfigError, match=r"override_config\.text_config\.hidden_size=7: the model has \d+; "):
        check_model(made)


def test_a_module_of_the_users_may_register_attention(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    mine = "actor_rollout_ref.model.override_config.attn_implementation=mine"
    check_model(with_model(tmp_path, mine, "actor_rollout_ref.model.external_lib=json"))


def test_a_model_with_a_flipped_bit_is_refused(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(bytes(64))
    write_manifest(weights.parent)
    check_model(with_model(tmp_path))
    weights.write_bytes(bytes(63) + b"\1")
    with pytest.raises(ConfigError, match=r"model\.path=.*: damaged: model\.safetensors: .*remove manifest\.json"):
        check_model(with_model(tmp_path))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match=r"holds no config\.json, so it is no Hugging Face model"):
        check_model(with_model(tmp_path))


def test_a_tokenizer_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path=.*: its tokenizer cannot be loaded: "):
        check_model(with_model(tmp_path))


def test_prompts_are_made_with_the_tokenizer_and_template_that_verl_takes(
    tmp_path: Path, tokenizer: WordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers

    loaded: list[str] = []
    (own := tmp_path / "own").mkdir()
    (own / "tokenizer_config.json").touch()

    def load(path: str, **kwargs: Any) -> WordTokenizer:
        loaded.append(path)
        return tokenizer

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", load)
    given = [f"actor_rollout_ref.model.tokenizer_path={own}", "actor_rollout_ref.model.custom_chat_template=mine"]
    check_model(with_model(tmp_path, *given))
    assert loaded == [str(own)] and tokenizer.chat_template == "mine"


def test_a_critics_model_that_is_not_there_is_refused(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    critic = ["algorithm.adv_estimator=gae", f"critic.model.path={tmp_path}"]
    with pytest.raises(ConfigError, match=r"^critic\.model\.path=.*: holds no config\.json, so it is no Hugging Face"):
        check_model(with_model(tmp_path, *critic))
    (tmp_path / "config.json").write_text('{"model_type": "nope"}')
    with pytest.raises(ConfigError, match=r"^critic\.model\.path=.*: its config cannot be loaded: .*nope"):
        check_model(with_model(tmp_path, *critic))


def test_a_model_without_a_chat_template_is_told_of_plain_ones(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    tokenizer.error = ValueError("Cannot use chat template functions because tokenizer.chat_template is not set")
    with pytest.raises(ConfigError, match=r"prompt\.template=chat: does not go with .*prompt\.template=octothinker"):
        check_model(with_model(tmp_path))
    assert check_model(with_model(tmp_path, "prompt.template=octothinker")) is tokenizer


def test_a_chat_template_that_leaves_out_what_a_player_sees_is_refused(tmp_path: Path) -> None:
    setup = config(tmp_path, "actor_rollout_ref.model.path=m", "games=[Nim]")
    parts = "{% for m in messages %}{% for part in m.content %}{{ part.text }}{% endfor %}{% endfor %}"  # not of texts
    with pytest.raises(ValueError, match=r"^prompt\.template=chat: does not go with m: its chat template leaves out"):
        check_prompts(setup, form(None, template=parts))


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
        (["games=[{id: TicTacToe, style: dialogue}]"], longest("TicTacToe", style="dialogue")),
        (["games=[{id: TicTacToe, style: state}]", "prompt.style=dialogue"], longest("TicTacToe")),
        (["games=[{id: TicTacToe, template: octothinker}]"], longest("TicTacToe", "octothinker")),
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
    with pytest.raises(ConfigError, match=rf"data\.max_prompt_length={needed - 1}: TicTacToe has prompts of {needed} "):
        check_model(with_model(tmp_path, *overrides, f"data.max_prompt_length={needed - 1}"))


def test_a_dialogue_that_is_too_long_names_its_mends(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    with pytest.raises(
        ConfigError, match=r"raise it, set rules\.turn_cap, give the game style: state, or leave it out"
    ):
        check_model(with_model(tmp_path, "prompt.style=dialogue", "data.max_prompt_length=60"))


def test_a_game_that_nobody_can_play_at_random_is_measured_as_far_as_it_goes(
    tmp_path: Path, tokenizer: WordTokenizer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Unknown(Nim):
        def random_action(self, rng: random.Random) -> str:
            raise ValueError("no legal action was found")

    monkeypatch.setattr("recipe.spiral.checks.prompts_fit.make", lambda game_id, seed: Unknown(seed))
    check_model(with_model(tmp_path, "games=[Nim]"))
    assert re.fullmatch(
        r"note: data\.max_prompt_length=480: Nim could be played at random in part only, with prompts of \d+ tokens: "
        r"no legal action was found\n",
        capsys.readouterr().err,
    )
    with pytest.raises(
        ConfigError, match=r"data\.max_prompt_length=10: Nim has prompts of .*raise it, or leave the game"
    ):
        check_model(with_model(tmp_path, "games=[Nim]", "data.max_prompt_length=10"))


def test_a_chat_template_must_keep_answers_for_a_dialogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(WordTokenizer):
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
            return super().apply_chat_template([message for message in conversation if message["role"] == "user"])

    class OneTurn(WordTokenizer):
        def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
            if len(conversation) > 1:
                raise TemplateError("one turn only")
            return super().apply_chat_template(conversation)

    setup = config(tmp_path, "actor_rollout_ref.model.path=some/model", "games=[{id: Nim, style: dialogue}]")
    with pytest.raises(ValueError, match=r"^games: Nim: style=dialogue: .*some/model leaves earlier answers out; take"):
        check_prompts(setup, Forgetful())
    with pytest.raises(
        ValueError, match=r"^games: Nim: style=dialogue: does not go with .*: one turn only; take style"
    ):
        check_prompts(setup, OneTurn())
    setup.games = ["Nim"]
    check_prompts(setup, Forgetful())
    check_prompts(setup, OneTurn())
