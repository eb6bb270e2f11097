"""Finds what is wrong with a config before anything is started, and says which setting to change and how."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .advantage import RoleBaselines
from .checkpoints import check_resumable, missing_parts, read_state
from .dataset import parse_games
from .guard import ACTIONS, Guard
from .match import Rules
from .prompt_checks import check_prompts
from .prompts import check_style, get_template

ESTIMATORS = ("rae", "grpo_role", "gae", "reinforce_plus_plus")
OPPONENTS = ("random",)
ON_FULL_DISK = ("stop", "go_on")
BATCH_UNITS = ("games", "turns")
ENGINE = "recipe.spiral.engine"
RESUME_MODES = ("auto", "disable", "resume_path")


class ConfigError(ValueError):
    """The config cannot be run; the message names the setting, its value and what to do."""


def check(config: DictConfig) -> None:
    """All that can be checked without the model.

    Raises:
        ConfigError: something is wrong.
    """
    for part in (
        _complete,
        _games,
        _rules,
        _batch,
        _algorithm,
        _reference,
        _lengths,
        _verl,
        _numbers,
        _guard,
        _installed,
        _checkpoints,
    ):
        try:
            part(config)
        except ConfigError:
            raise
        except (ValueError, ImportError, OmegaConfBaseException) as error:
            raise ConfigError(str(error)) from error


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)


def _complete(config: DictConfig) -> None:
    missing = [key for key in OmegaConf.missing_keys(config) if not key.startswith(("hydra", "critic", "reward"))]
    _require(
        config.actor_rollout_ref.model.path is not None or config.embedded_model is not None,
        "actor_rollout_ref.model.path is not set: give a model's folder or hub id, or take model=tiny",
    )
    _require(not missing, f"{', '.join(sorted(missing))}: not set")


def _games(config: DictConfig) -> None:
    unit = config.batch_unit
    _require(unit in BATCH_UNITS, f"batch_unit={unit!r}: unknown; known: {', '.join(BATCH_UNITS)}")
    parse_games(config.games)
    if config.validation.games is not None:
        parse_games(config.validation.games, "validation.games")
    opponent = config.validation.opponent
    _require(opponent in OPPONENTS, f"validation.opponent={opponent!r}: unknown; known: {', '.join(OPPONENTS)}")


def _rules(config: DictConfig) -> None:
    Rules.from_config(config.rules)
    get_template(config.prompt.template)
    check_style(config.prompt.style)


def _algorithm(config: DictConfig) -> None:
    name = config.algorithm.adv_estimator
    _require(
        name != "grpo",
        "algorithm.adv_estimator=grpo: compares the two players of one game, whose outcomes R and -R have the mean 0; "
        "take grpo_role, with data.games_per_start",
    )
    _require(name in ESTIMATORS, f"algorithm.adv_estimator={name!r}: unknown here; known: {', '.join(ESTIMATORS)}")
    rae = config.algorithm.rae
    RoleBaselines(rae.decay, rae.initial, rae["update"], rae.baseline)
    gamma = config.algorithm.gamma
    _require(0 < gamma <= 1, f"algorithm.gamma={gamma}: must be above 0 and at most 1")
    scale = config.algorithm.reward_scale
    _require(scale > 0, f"algorithm.reward_scale={scale}: must be above 0")
    size, same = config.data.train_batch_size, config.data.games_per_start
    _require(
        config.batch_unit != "turns" or same == 1,
        f"data.games_per_start={same}: batch_unit=turns ends a batch after any game, also within those of one start; "
        "take batch_unit=games",
    )
    _require(
        isinstance(same, int) and same >= 1 and size % same == 0,
        f"data.games_per_start={same}: must be a whole number that divides data.train_batch_size={size}",
    )
    _require(
        name != "grpo_role" or same > 1,
        f"data.games_per_start={same}: algorithm.adv_estimator=grpo_role compares games from the same start; take 8",
    )


def _reference(config: DictConfig) -> None:
    every, actor, ref = config.ref_update_freq, config.actor_rollout_ref.actor, config.actor_rollout_ref.ref
    if every is None:
        return
    _require(
        isinstance(every, int) and not isinstance(every, bool) and every >= 1,
        f"ref_update_freq={every}: must be a whole number above 0, or null",
    )
    _require(
        actor.use_kl_loss or config.algorithm.use_kl_in_reward,
        f"ref_update_freq={every}: without KL there is no reference policy; set "
        "actor_rollout_ref.actor.use_kl_loss=true or algorithm.use_kl_in_reward=true, or ref_update_freq=null",
    )
    for name, part in (("actor", actor), ("ref", ref)):
        _require(
            part.strategy == "fsdp2",
            f"actor_rollout_ref.{name}.strategy={part.strategy}: ref_update_freq={every} copies the shards of fsdp2; "
            "take fsdp2, or ref_update_freq=null",
        )
    _require(
        actor.fsdp_config.fsdp_size == ref.fsdp_config.fsdp_size,
        f"actor_rollout_ref.ref.fsdp_config.fsdp_size={ref.fsdp_config.fsdp_size}: must be the actor's, "
        f"{actor.fsdp_config.fsdp_size}, with ref_update_freq={every}",
    )


def _batch(config: DictConfig) -> None:
    raw = OmegaConf.to_container(config.actor_rollout_ref.actor, resolve=False)
    assert isinstance(raw, dict)
    _require(
        raw["ppo_mini_batch_size"] == "${data.train_batch_size}",
        f"actor_rollout_ref.actor.ppo_mini_batch_size={raw['ppo_mini_batch_size']}: cannot be set, because the number "
        "of turns in a batch varies with the games' lengths; set num_mini_batches, the number of optimizer steps per "
        "epoch, instead",
    )
    unit, fetched = config.batch_unit, config.data.gen_batch_size
    _require(
        unit != "turns" or fetched == 1,
        f"data.gen_batch_size={fetched}: cannot be set with batch_unit=turns, which fetches games one by one",
    )
    size, ranks = config.data.train_batch_size, config.trainer.n_gpus_per_node * config.trainer.nnodes
    _require(isinstance(size, int) and size >= 1, f"data.train_batch_size={size}: must be a whole number above 0")
    sessions = "two players a game make" if unit == "games" else "verl takes two sessions for each, which makes"
    _require(
        2 * size % ranks == 0,
        f"data.train_batch_size={size}: {sessions} {2 * size} sessions, which {ranks} ranks "
        f"(trainer.n_gpus_per_node x trainer.nnodes) do not divide; take {_next_multiple(size, ranks)}",
    )
    mini_batches = config.num_mini_batches
    _require(
        isinstance(mini_batches, int) and 1 <= mini_batches <= size,
        f"num_mini_batches={mini_batches}: must be from 1 to data.train_batch_size={size}",
    )


def _next_multiple(size: int, ranks: int) -> int:
    while 2 * size % ranks:
        size += 1
    return size


def _lengths(config: DictConfig) -> None:
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    _require(prompt >= 1, f"data.max_prompt_length={prompt}: must be at least 1")
    _require(response >= 1, f"data.max_response_length={response}: must be at least 1")
    window = config.actor_rollout_ref.rollout.max_model_len
    _require(
        window is None or prompt + response <= window,
        f"data.max_prompt_length={prompt} + data.max_response_length={response} is more than "
        f"actor_rollout_ref.rollout.max_model_len={window}: lower one of them or raise that",
    )
    rollout = config.actor_rollout_ref.rollout
    _require(
        rollout.enable_chunked_prefill or window is None or window <= rollout.max_num_batched_tokens,
        f"actor_rollout_ref.rollout.max_num_batched_tokens={rollout.max_num_batched_tokens}: must be at least "
        f"actor_rollout_ref.rollout.max_model_len={window} where prompts are not taken in parts "
        "(enable_chunked_prefill=false)",
    )


def _verl(config: DictConfig) -> None:
    """What verl would accept, and SPIRAL cannot do with."""
    n = config.actor_rollout_ref.rollout.n
    _require(n == 2, f"actor_rollout_ref.rollout.n={n}: must be 2, one session for each player")
    _require(not config.data.shuffle, "data.shuffle=true: must be false; the seed already draws the games at random")
    mode = config.trainer.v1.trainer_mode
    _require(mode == "sync", f"trainer.v1.trainer_mode={mode}: only sync is supported")
    libraries = config.actor_rollout_ref.model.external_lib
    _require(
        ENGINE in ([libraries] if isinstance(libraries, str) else list(libraries or [])),
        f"actor_rollout_ref.model.external_lib={libraries}: must name {ENGINE}, too: [{ENGINE}, ...]",
    )
    name = config.actor_rollout_ref.rollout.name
    _require(name == "vllm", f"actor_rollout_ref.rollout.name={name}: only vllm is supported")
    _require(bool(config.trainer.use_v1), "trainer.use_v1=false: SPIRAL runs on verl's V1 trainer")
    steps = config.trainer.total_training_steps
    _require(isinstance(steps, int) and steps >= 1, f"trainer.total_training_steps={steps}: must be a number above 0")


def _numbers(config: DictConfig) -> None:
    for setting, least in (("validation.games_per_role", 1), ("records.every", 0), ("seed", 0)):
        value = OmegaConf.select(config, setting)
        _require(
            isinstance(value, int) and value >= least, f"{setting}={value}: must be a whole number from {least} up"
        )
    _require(config.poll_interval > 0, f"poll_interval={config.poll_interval}: must be above 0 seconds")


def _guard(config: DictConfig) -> None:
    # a YAML file's plain off is false
    action, chars = config.guard.action, config.guard.reasoning_chars
    _require(action in ACTIONS or action is False, f"guard.action={action!r}: unknown; known: {', '.join(ACTIONS)}")
    _require(isinstance(chars, int) and chars >= 0, f"guard.reasoning_chars={chars}: must be a whole number from 0 up")
    Guard.from_settings(config.guard)


def _installed(config: DictConfig) -> None:
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "vLLM is not installed: on a machine with GPUs pip install 'verl-spiral[gpu]', on one without run "
            "run_scripts/setup.sh"
        )
    if config.trainer.device != "cuda" or os.environ.get("RAY_ADDRESS") or config.ray_kwargs.ray_init.get("address"):
        return
    import torch

    found, wanted = torch.cuda.device_count(), config.trainer.n_gpus_per_node
    _require(
        found > 0,
        f"hardware=gpu: torch {torch.__version__} finds no GPU here; take hardware=cpu, or an environment for GPUs "
        "(run_scripts/setup.sh --gpu), or start this where RAY_ADDRESS names a cluster",
    )
    _require(
        found >= wanted,
        f"trainer.n_gpus_per_node={wanted}: this machine has {found}; take trainer.n_gpus_per_node={found}",
    )


def _checkpoints(config: DictConfig) -> None:
    ranks = config.trainer.n_gpus_per_node * config.trainer.nnodes
    on_full, keep = config.checkpoint.on_full_disk, config.trainer.max_actor_ckpt_to_keep
    _require(on_full in ON_FULL_DISK, f"checkpoint.on_full_disk={on_full!r}: unknown; known: {', '.join(ON_FULL_DISK)}")
    _require(
        keep is None or (isinstance(keep, int) and keep >= 1),
        f"trainer.max_actor_ckpt_to_keep={keep}: must be a whole number from 1 up, or null to keep all",
    )
    _require(
        not OmegaConf.select(config, "actor_rollout_ref.actor.checkpoint.async_save", default=False),
        "actor_rollout_ref.actor.checkpoint.async_save=true: must be false; a checkpoint is named when it is written",
    )
    mode, path = config.trainer.resume_mode, config.trainer.resume_from_path
    _require(mode in RESUME_MODES, f"trainer.resume_mode={mode}: unknown; known: {', '.join(RESUME_MODES)}")
    if mode == "auto":
        latest = check_resumable(Path(config.trainer.default_local_dir), ranks)
        if latest is not None:
            _same_games(config, Path(config.trainer.default_local_dir) / f"global_step_{latest}")
    elif mode == "resume_path":
        _require(bool(path) and Path(path).is_dir(), f"trainer.resume_from_path={path}: there is no such folder")
        step = Path(path).name.removeprefix("global_step_")
        _require(step.isdecimal(), f"trainer.resume_from_path={path}: must be a checkpoint's folder, global_step_<n>")
        missing = missing_parts(Path(path), ranks)
        _require(
            not missing, f"trainer.resume_from_path={path}: not whole: missing or cut short: {', '.join(missing[:3])}"
        )
        _same_games(config, Path(path))


def _same_games(config: DictConfig, checkpoint: Path) -> None:
    """What the keys of a run's games follow from must stay: verl keeps the dataset's place in games, or in fetches."""
    state = {"batch_unit": "games", **read_state(checkpoint)}
    settings = ["seed", "batch_unit"]
    if config.batch_unit == "games":
        settings += ["data.train_batch_size", "data.games_per_start"]
    for setting in settings:
        before, now = state.get(setting), OmegaConf.select(config, setting)
        _require(
            before is None or before == now,
            f"{setting}={now}: cannot go on from {checkpoint}, which was trained with {before}; "
            f"take {setting}={before}, or another run_dir",
        )


def check_model(config: DictConfig) -> Any:
    """That the model's path is one, and that the games' prompts fit.

    Returns:
        The model's tokenizer.

    Raises:
        ConfigError: no model there, or a prompt is too long.
    """
    path = os.path.expanduser(str(config.actor_rollout_ref.model.path))
    local = os.path.isdir(path)
    if not local and (path.startswith(("/", ".", "~")) or path.count("/") > 1):
        raise ConfigError(f"actor_rollout_ref.model.path={path}: there is no such folder")
    if local and not os.path.isfile(os.path.join(path, "config.json")):
        raise ConfigError(f"actor_rollout_ref.model.path={path}: holds no config.json, so it is no Hugging Face model")
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(
            path, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code
        )
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(f"actor_rollout_ref.model.path={path}: its tokenizer cannot be loaded: {reason}") from error
    _window_fits(config, path)
    try:
        check_prompts(config, tokenizer)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return tokenizer


def _window_fits(config: DictConfig, path: str) -> None:
    """vLLM would give a response less room than max_response_length, which would look like an end of its own."""
    from transformers import AutoConfig

    model = AutoConfig.from_pretrained(path, trust_remote_code=config.actor_rollout_ref.model.trust_remote_code)
    limit = getattr(model.get_text_config(), "max_position_embeddings", None)
    needed = config.data.max_prompt_length + config.data.max_response_length
    if limit is not None and needed > limit:
        raise ConfigError(
            f"data.max_prompt_length={config.data.max_prompt_length} + data.max_response_length="
            f"{config.data.max_response_length} is more than the {limit} tokens that the model reads: lower one of them"
        )
    window = config.actor_rollout_ref.rollout.max_model_len
    if limit is not None and window is not None and window > limit:
        raise ConfigError(
            f"actor_rollout_ref.rollout.max_model_len={window}: the model reads {limit} tokens at most; lower it"
        )
