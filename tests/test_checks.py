"""A config that cannot run is refused before anything starts, with the setting, its value and the mend."""

from __future__ import annotations

import importlib.util
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from jinja2 import TemplateError
from omegaconf import DictConfig, OmegaConf

from recipe.spiral import checks, main_spiral
from recipe.spiral.checkpoints import STATE_FILE, TRACKER, write_state
from recipe.spiral.checks import ConfigError, check, check_model
from recipe.spiral.games import make
from recipe.spiral.match import Rules
from recipe.spiral.players import RandomPlayer
from recipe.spiral.prompt_checks import PLAYOUTS, check_prompts
from recipe.spiral.prompts import History, encoder, get_template
from recipe.spiral.seeds import GameKey
from tests.made import run_match
from tests.test_checkpoints import save

#: The config's resolvers come with the module that it lies beside.
CONFIG = Path(main_spiral.__file__).parent / "config"


@pytest.fixture(scope="module", autouse=True)
def hydra() -> Any:
    with initialize_config_dir(str(CONFIG), version_base=None):
        yield


@pytest.fixture(autouse=True)
def has_vllm_and_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed here is another test's matter."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *args: find_spec("json" if name == "vllm" else name, *args)
    )


@cache
def composed(hardware: str, model: str) -> DictConfig:
    return compose("spiral_trainer", overrides=[f"hardware={hardware}", f"model={model}"])


def config(tmp_path: Path, *overrides: str, hardware: str = "cpu", model: str = "tiny") -> DictConfig:
    """The real config; overrides are merged into a copy, because composing it anew takes half a second."""
    changes = OmegaConf.from_dotlist([f"run_dir={tmp_path / 'run'}", *overrides])
    merged = OmegaConf.merge(composed(hardware, model), changes)
    assert isinstance(merged, DictConfig)
    return merged


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("ref_update_freq=0", r"ref_update_freq=0: must be a whole number above 0, or null"),
        ("ref_update_freq=1.5", r"ref_update_freq=1\.5: must be a whole number"),
        ("ref_update_freq=true", r"ref_update_freq=True: must be a whole number"),
        (
            "actor_rollout_ref.actor.use_kl_loss=false",
            r"ref_update_freq=2: without KL there is no reference policy; set "
            r"actor_rollout_ref\.actor\.use_kl_loss=true or algorithm\.use_kl_in_reward=true, or ref_update_freq=null",
        ),
        (
            "actor_rollout_ref.actor.strategy=fsdp",
            r"actor_rollout_ref\.actor\.strategy=fsdp: ref_update_freq=2 copies the shards of fsdp2; take fsdp2",
        ),
        (
            "actor_rollout_ref.ref.fsdp_config.fsdp_size=2",
            r"ref\.fsdp_config\.fsdp_size=2: must be the actor's, -1, with ref_update_freq=2",
        ),
    ],
)
def test_a_reference_that_cannot_be_updated_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, "ref_update_freq=2", "actor_rollout_ref.actor.use_kl_loss=true", override))


@pytest.mark.parametrize("hardware", ["cpu", "gpu"])
@pytest.mark.parametrize("model", ["tiny", "smollm2_135m", "hf"])
def test_the_presets_pass(tmp_path: Path, hardware: str, model: str) -> None:
    more = ["actor_rollout_ref.model.path=some/model"] if model == "hf" else []
    check(config(tmp_path, *more, hardware=hardware, model=model))


@pytest.mark.parametrize(
    "overrides",
    [
        ["games=[TicTacToe, {id: KuhnPoker-v0, weight: 2, template: qwen3}]"],
        ["prompt.style=dialogue", "games=[TicTacToe, {id: KuhnPoker, style: state}]"],
        ["validation.games=[{id: Nim, style: dialogue}]"],
        ["algorithm.adv_estimator=grpo_role", "data.games_per_start=8"],
        ["batch_unit=turns", "num_mini_batches=4", "trainer.n_gpus_per_node=4"],
        ["rules.illegal_rewards=loss", "rules.cut_off=mask", "algorithm.filter_draws=true"],
        ["rules.illegal_rewards=[-1,1]", "rules.turn_cap=8", "rules.cut_off=read"],
        ["num_mini_batches=4", "trainer.n_gpus_per_node=4"],
        ["algorithm.rae.update=batch", "algorithm.gamma=0.9"],
        ["validation.games=[Nim]"],
        ["ref_update_freq=1", "actor_rollout_ref.actor.use_kl_loss=true"],
        ["ref_update_freq=10", "algorithm.use_kl_in_reward=true", "actor_rollout_ref.model.lora_rank=8"],
        ["trainer.resume_mode=disable", "records.every=0"],
        ["guard.action=stop", "guard.shorter=null", "guard.grad_norm=5"],
    ],
    ids=str,
)
def test_what_may_be_set_passes(tmp_path: Path, overrides: list[str]) -> None:
    check(config(tmp_path, *overrides))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("games=[TicTacTo]", r"unknown game 'TicTacTo'\. Did you mean 'TicTacToe'\? Known games: "),
        ("games=TicTacToe", r"games='TicTacToe': must be a list: games=\[TicTacToe\]"),
        ("games=[]", r"games=\[\]: name at least one game"),
        ("games=[Nim,Nim-v0]", r"games: a game is named twice: Nim, Nim; use weight instead"),
        ("validation.games=[Nimm]", r"unknown game 'Nimm'"),
        ("validation.opponent=gpt", r"validation\.opponent='gpt': unknown; known: random"),
        ("validation.games_per_role=0", r"validation\.games_per_role=0: must be a whole number from 1 up"),
        ("algorithm.adv_estimator=gae2", r"algorithm\.adv_estimator='gae2': unknown here; known: rae, grpo_role"),
        ("algorithm.adv_estimator=grpo", r"algorithm\.adv_estimator=grpo: .* have the mean 0; take grpo_role"),
        ("algorithm.adv_estimator=grpo_role", r"data\.games_per_start=1: .* compares games from the same start"),
        ("data.games_per_start=3", r"data\.games_per_start=3: must be a whole number that divides .*=128"),
        ("algorithm.reward_scale=0", r"algorithm\.reward_scale=0: must be above 0"),
        ("rules.illegal_rewards=mild", r"rules\.illegal_rewards='mild': must be one of spiral, loss, or two numbers"),
        ("algorithm.rae.decay=1.5", r"algorithm\.rae\.decay=1\.5: must be from 0 to 1"),
        ("algorithm.rae.update=turn", r"algorithm\.rae\.update='turn': must be 'game' or 'batch'"),
        ("algorithm.gamma=0", r"algorithm\.gamma=0: must be above 0 and at most 1"),
        (
            "rules.illegal_rewards=[-0.5,0.5]",
            r"rules\.illegal_rewards=\[-0\.5, 0\.5\]: the offender must get -1 or less",
        ),
        ("rules.illegal_rewards=[-1.5]", r"rules\.illegal_rewards=\[-1\.5\]: must be two numbers"),
        ("rules.illegal_rewards=-1.5", r"rules\.illegal_rewards=-1\.5: must be two numbers"),
        ("rules.cut_off=draw", r"rules\.cut_off='draw': must be 'illegal', 'mask' or 'read'"),
        ("rules.turn_cap=0", r"rules\.turn_cap=0: must be at least 1, or null"),
        ("prompt.template=qwen", r"prompt\.template='qwen': unknown; known templates: .*qwen3"),
        ("prompt.style=dialog", r"^prompt\.style='dialog': unknown; known styles: state, dialogue"),
        ("prompt.style=null", r"^prompt\.style=None: unknown; known styles: state, dialogue"),
        ("games=[{id: Nim, style: chat}]", r"^games: Nim: style='chat': unknown; known styles: state, dialogue"),
        ("validation.games=[{id: Nim, style: chat}]", r"^validation\.games: Nim: style='chat': unknown; known styles"),
        (
            "actor_rollout_ref.actor.ppo_mini_batch_size=64",
            r"actor\.ppo_mini_batch_size=64: cannot be set, because .* set num_mini_batches",
        ),
        ("batch_unit=rows", r"batch_unit='rows': unknown; known: games, turns"),
        ("batch_unit=null", r"batch_unit=None: unknown; known: games, turns"),
        ("data.train_batch_size=0", r"data\.train_batch_size=0: must be a whole number above 0"),
        ("num_mini_batches=0", r"num_mini_batches=0: must be from 1 to data\.train_batch_size=128"),
        ("num_mini_batches=129", r"num_mini_batches=129: must be from 1 to data\.train_batch_size=128"),
        ("num_mini_batches=1.5", r"num_mini_batches=1\.5: must be from 1"),
        ("checkpoint.on_full_disk=wait", r"checkpoint\.on_full_disk='wait': unknown; known: stop, go_on"),
        ("trainer.max_actor_ckpt_to_keep=0", r"max_actor_ckpt_to_keep=0: must be a whole number from 1 up, or null"),
        ("actor_rollout_ref.actor.checkpoint.async_save=true", r"async_save=true: must be false"),
        ("guard.action=end", r"guard\.action='end': unknown; known: warn, stop, off"),
        ("guard.window=0", r"guard\.window=0: must be a whole number from 1 up"),
        ("guard.shorter=-1", r"guard\.shorter=-1: must be a number from 0 up, or null"),
        ("guard.reasoning_chars=-1", r"guard\.reasoning_chars=-1: must be a whole number"),
        ("data.max_prompt_length=0", r"data\.max_prompt_length=0: must be at least 1"),
        ("data.max_response_length=0", r"data\.max_response_length=0: must be at least 1"),
        (
            "data.max_response_length=4096",
            r"max_prompt_length=\d+ \+ data\.max_response_length=4096 is more than .*max_model_len=512: lower one",
        ),
        (
            "actor_rollout_ref.rollout.max_num_batched_tokens=100",
            r"max_num_batched_tokens=100: must be at least actor_rollout_ref\.rollout\.max_model_len=512",
        ),
        ("actor_rollout_ref.rollout.n=8", r"actor_rollout_ref\.rollout\.n=8: must be 2, one session for each player"),
        ("actor_rollout_ref.rollout.name=sglang", r"actor_rollout_ref\.rollout\.name=sglang: only vllm is supported"),
        ("data.shuffle=true", r"data\.shuffle=true: must be false"),
        ("trainer.v1.trainer_mode=colocate_async", r"trainer\.v1\.trainer_mode=colocate_async: only sync is supported"),
        ("trainer.use_v1=false", r"trainer\.use_v1=false: SPIRAL runs on verl's V1 trainer"),
        ("trainer.total_training_steps=null", r"trainer\.total_training_steps=None: must be a number above 0"),
        ("trainer.total_training_steps=0", r"trainer\.total_training_steps=0: must be a number above 0"),
        ("records.every=-1", r"records\.every=-1: must be a whole number from 0 up"),
        ("seed=-1", r"seed=-1: must be a whole number from 0 up"),
        ("seed=null", r"seed=None: must be a whole number from 0 up"),
        ("poll_interval=0", r"poll_interval=0: must be above 0 seconds"),
        ("trainer.resume_mode=yes", r"trainer\.resume_mode=.*: unknown; known: auto, disable, resume_path"),
        ("trainer.resume_mode=resume_path", r"trainer\.resume_from_path=None: there is no such folder"),
    ],
)
def test_a_bad_setting_is_named_with_its_value_and_its_mend(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, override))


def test_a_batch_that_the_ranks_do_not_divide_names_one_that_they_do(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.train_batch_size=10: .* 20 sessions, which 8 ranks .*; take 12"):
        check(config(tmp_path, "data.train_batch_size=10", "trainer.n_gpus_per_node=4", "trainer.nnodes=2"))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("data.games_per_start=8", r"data\.games_per_start=8: batch_unit=turns ends a batch .*; take batch_unit=games"),
        ("data.gen_batch_size=16", r"data\.gen_batch_size=16: cannot be set with batch_unit=turns"),
        ("data.train_batch_size=31", r"data\.train_batch_size=31: verl takes two .* 62 sessions, which 4 .*; take 32"),
        ("data.train_batch_size=12.5", r"data\.train_batch_size=12\.5: must be a whole number above 0"),
        ("num_mini_batches=129", r"num_mini_batches=129: must be from 1 to data\.train_batch_size=128"),
    ],
)
def test_what_does_not_go_with_turns(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(tmp_path, "batch_unit=turns", "trainer.n_gpus_per_node=4", override))


def test_games_are_fetched_by_the_batch_and_for_turns_one_by_one(tmp_path: Path) -> None:
    assert config(tmp_path).data.gen_batch_size is None
    assert config(tmp_path, "batch_unit=turns").data.gen_batch_size == 1


@pytest.mark.parametrize(("before", "now"), [("games", "turns"), ("turns", "games")])
def test_a_run_keeps_its_unit(tmp_path: Path, before: str, now: str) -> None:
    folder = save(tmp_path / "run" / "checkpoints", 10)
    write_state(folder, {"batch_unit": before} if before == "turns" else {})
    check(config(tmp_path, f"batch_unit={before}"))
    for how in ([], ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]):
        with pytest.raises(ConfigError, match=rf"batch_unit={now}: cannot go on from .*take batch_unit={before}, or"):
            check(config(tmp_path, f"batch_unit={now}", *how))
    check(config(tmp_path, f"batch_unit={now}", "trainer.resume_mode=disable"))


def test_a_game_of_a_package_that_is_missing_names_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(entries: Any, setting: str = "games") -> None:
        raise ImportError("textarena is not installed: pip install 'verl-spiral[textarena]'")

    monkeypatch.setattr(checks, "parse_games", missing)
    with pytest.raises(ConfigError, match=r"pip install 'verl-spiral\[textarena\]'"):
        check(config(tmp_path))


def test_a_model_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path is not set: .* or take model=tiny"):
        check(config(tmp_path, "actor_rollout_ref.model.path=null", model="hf"))


def test_vllm_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *args: None)
    with pytest.raises(ConfigError, match=r"vLLM is not installed: .*pip install.*run_scripts/setup\.sh"):
        check(config(tmp_path))


def test_a_half_deleted_checkpoint_is_refused(tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    save(checkpoints, 10)
    check(config(tmp_path))
    (checkpoints / "global_step_10" / STATE_FILE).unlink()
    with pytest.raises(
        ConfigError,
        match=r"global_step_10 is not whole .*missing or cut short: spiral\.json.*trainer\.resume_mode=disable",
    ):
        check(config(tmp_path))
    check(config(tmp_path, "trainer.resume_mode=disable"))


def test_an_empty_tracker_is_mended(tmp_path: Path) -> None:
    checkpoints = tmp_path / "run" / "checkpoints"
    save(checkpoints, 10)
    (checkpoints / TRACKER).write_text("")
    check(config(tmp_path))
    assert (checkpoints / TRACKER).read_text() == "10"


def test_a_checkpoint_can_be_named(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    resume = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={folder}"]
    check(config(tmp_path, *resume))
    with pytest.raises(
        ConfigError, match=r"resume_from_path=.*: not whole: missing or cut short: actor/model_world_size_2"
    ):
        check(config(tmp_path, *resume, "trainer.n_gpus_per_node=2"))
    with pytest.raises(ConfigError, match=r"must be a checkpoint's folder, global_step_<n>"):
        check(config(tmp_path, resume[0], f"trainer.resume_from_path={folder / 'actor'}"))


# -- the model ---------------------------------------------------------------------------------------------------------


class WordTokenizer:
    """One token a word."""

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


def test_prompts_are_measured_as_the_game_goes_on(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    """Three rounds of poker: the first prompt fits, later ones hold the earlier rounds' results."""
    setup = with_model(tmp_path, "games=[KuhnPoker-3]")
    first = len(get_template(setup.prompt.template).encode(tokenizer, make("KuhnPoker-3", 0).observation(0)))
    setup.data.max_prompt_length = first
    with pytest.raises(ConfigError, match=rf"data\.max_prompt_length={first}: KuhnPoker-3 has prompts of"):
        check_model(setup)


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
        (["games=[{id: TicTacToe, template: r1}]"], longest("TicTacToe", "r1")),
        (
            ["games=[Nim]", "validation.games=[{id: TicTacToe, style: dialogue, template: r1}]"],
            longest("TicTacToe", "r1", "dialogue"),
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


def test_a_dialogue_that_may_grow_too_long_is_told_of(
    tmp_path: Path, tokenizer: WordTokenizer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Random games of it are over sooner; with a cap, or where there is room, nothing need be said."""
    setup = ["games=[LiarsDice]", "data.max_prompt_length=6000", "actor_rollout_ref.rollout.max_model_len=null"]
    check_model(with_model(tmp_path, *setup))
    check_model(with_model(tmp_path, *setup, "prompt.style=dialogue", "rules.turn_cap=30"))
    assert capsys.readouterr().err == ""
    check_model(with_model(tmp_path, *setup, "prompt.style=dialogue"))
    note = capsys.readouterr().err
    assert re.search(
        r"^note: data\.max_prompt_length=6000: LiarsDice was over after \d+ turns at most, .*turn_cap$", note
    )


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


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/nowhere/model", r"actor_rollout_ref\.model\.path=/nowhere/model: there is no such folder"),
        ("./model", r"\./model: there is no such folder"),
        ("some/model/here", r"=some/model/here: there is no such folder"),
    ],
)
def test_a_model_that_is_not_there_is_refused(tmp_path: Path, path: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check_model(config(tmp_path, f"actor_rollout_ref.model.path={path}"))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match=r"holds no config\.json, so it is no Hugging Face model"):
        check_model(with_model(tmp_path))


def test_a_tokenizer_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"actor_rollout_ref\.model\.path=.*: its tokenizer cannot be loaded: "):
        check_model(with_model(tmp_path))


def test_a_model_without_a_chat_template_is_told_of_plain_ones(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    tokenizer.error = ValueError("Cannot use chat template functions because tokenizer.chat_template is not set")
    with pytest.raises(
        ConfigError, match=r"prompt\.template=chat: does not go with .*prompt\.template=r1 or octothinker"
    ):
        check_model(with_model(tmp_path))
    assert check_model(with_model(tmp_path, "prompt.template=r1")) is tokenizer


@pytest.mark.parametrize("change", ["seed=1", "data.train_batch_size=64", "data.games_per_start=4"])
def test_a_run_keeps_what_its_keys_follow_from(tmp_path: Path, change: str) -> None:
    """Otherwise games of an earlier step would be played again, or counted to another one."""
    folder = save(tmp_path / "run" / "checkpoints", 10)
    state = {"seed": 0, "batch_unit": "games", "data.train_batch_size": 128, "data.games_per_start": 1}
    (folder / STATE_FILE).write_text(json.dumps(state))
    (folder.parent / TRACKER).write_text("10")
    check(config(tmp_path))
    with pytest.raises(ConfigError, match=rf"{change}: cannot go on from .*global_step_10, which was trained with \d+"):
        check(config(tmp_path, change))


def test_a_gpu_run_needs_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or a cluster that may have them."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    with pytest.raises(ConfigError, match=r"hardware=gpu: torch .* finds no GPU here; take hardware=cpu"):
        check(config(tmp_path, hardware="gpu"))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match=r"trainer\.n_gpus_per_node=8: this machine has 2"):
        check(config(tmp_path, hardware="gpu"))
    monkeypatch.setenv("RAY_ADDRESS", "auto")
    check(config(tmp_path, hardware="gpu"))


def test_the_engine_stays_ours(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"external_lib=mine: must name recipe\.spiral\.engine, too"):
        check(config(tmp_path, "actor_rollout_ref.model.external_lib=mine"))
    check(config(tmp_path, "actor_rollout_ref.model.external_lib=[recipe.spiral.engine,mine]"))
