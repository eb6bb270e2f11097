"""The type and the range of each of SPIRAL's own settings, and of verl's that users set; the comments in
``config/spiral_trainer.yaml`` say what they do.

Lists of games and opponents, the rules and the prompts are parsed where they are used, with messages of their own.
"""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, TypeAdapter, ValidationError

from ..opponents.pool import Keep, Sample
from .errors import ConfigError, written

Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Positive = Annotated[float, Gt(0)]
Bound = Annotated[float, Ge(0)]
#: vLLM raises a lower temperature to 0.01 and refuses a higher one; 0 stands for the most likely tokens.
Temperature = Annotated[float, Ge(0.01), Le(2)]
ValidationTemperature = Annotated[float, Ge(0), Le(2)]

#: The share of the most likely tokens, and their number, that are sampled from.
TopP = Annotated[float, Gt(0), Le(1)]
TopK = Literal[-1] | Count
Part = Annotated[float, Gt(0), Lt(1)]
Rate = Annotated[float, Ge(0), Lt(1)]


def _optimizer(part: str) -> dict[str, Any]:
    """Of the policy, or of the critic."""
    return {
        f"{part}.grad_clip": Positive,
        f"{part}.optim.lr": Positive,
        f"{part}.optim.weight_decay": Bound,
        f"{part}.optim.betas": tuple[Rate, Rate],
        f"{part}.optim.lr_warmup_steps": Literal[-1] | Whole,
        f"{part}.optim.lr_warmup_steps_ratio": Share,
        f"{part}.optim.min_lr_ratio": Share,
        f"{part}.optim.num_cycles": Positive,
        f"{part}.ppo_epochs": Count,
        f"{part}.ppo_max_token_len_per_gpu": Count,
        f"{part}.ulysses_sequence_parallel_size": Count,
    }


_ACTOR, _MODEL, _ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"
#: What a value of each setting must be. Settings that are not here are verl's, or parsed elsewhere.
SETTINGS: dict[str, Any] = {
    "seed": Whole,
    "determinism": bool,
    "measured_in": Literal["float32"] | None,
    "batch_unit": Literal["games", "turns"],
    "num_mini_batches": Count,
    "ref_update_freq": Count | None,
    "ref_update_rate": Annotated[float, Gt(0), Le(1)],
    "embedded_model": str | None,
    "run_dir": str,
    "jobs_at_once": Count,
    "runtime": Literal["fast", "stock"],
    "actor_rollout_ref.rollout.agent.num_workers": Whole,
    "extensions": list[str],
    "verbose": bool,
    "fsp.enabled": bool,
    "fsp.ratio": Share,
    "fsp.size": Count,
    "fsp.start_from": Whole,
    "fsp.update_interval": Count | None,
    "fsp.keep": Keep,
    "fsp.sample": Sample,
    "fsp.members_per_step": Count,
    "fsp.initial": list[Any],
    "fsp.on_missing": Literal["leave_out", "stop"],
    "max_void_steps": Count | None,
    "opponent_engine.devices": Literal["shared", "own"],
    "opponent_engine.replicas": Count | None,
    "opponent_engine.sleep_level": Literal[1, 2] | None,
    "opponent_engine.gpu_memory_utilization": Part,
    "opponent_engine.kv_cache_memory_bytes": Count | None,
    "opponent_engine.rollout": dict[str, Any],
    "draw_retry.enabled": bool,
    "draw_retry.max_retries": Count,
    "draw_retry.swap": bool,
    "draw_retry.temperature": Temperature | None,
    "asynchronous.max_staleness": Whole | None,
    "asynchronous.on_stale": Literal["wait", "drop"],
    "branching.states": Whole,
    "branching.continuations": Count,
    "questions.grader": str,
    "questions.seconds": Positive,
    "questions.workers": Count,
    "validation.games_per_role": Count,
    "validation.questions": Count | None,
    "validation.died_out_below": Share,
    "records.every": Whole,
    "records.tokens": bool,
    "memory.device_gib": Positive | None,
    "memory.on_excess": Literal["stop", "warn"],
    "dry_run": bool,
    "checkpoint.on_full_disk": Literal["stop", "go_on"],
    # YAML reads a plain off as false
    "watchdog": Literal["warn", "stop", "off", False],
    "guard.action": Literal["warn", "stop", "off", False],
    "guard.window": Count,
    "guard.patience": Count,
    "guard.shorter": Bound | None,
    "guard.short_reasoning": Bound | None,
    "guard.reasoning_chars": Whole,
    "guard.entropy_low": Bound | None,
    "guard.entropy_high": Bound | None,
    "guard.role_imbalance": Bound | None,
    "guard.invalid": Bound | None,
    "guard.grad_norm": Bound | None,
    "algorithm.gamma": Annotated[float, Gt(0), Le(1)],
    "algorithm.reward_scale": Positive,
    "algorithm.filter_zero_advantages": bool,
    "algorithm.filter_draws": bool,
    "algorithm.dpo_beta": Positive,
    "algorithm.dpo_loss_type": Literal["sigmoid", "ipo", "hinge"],
    "algorithm.dpo_label_smoothing": Annotated[float, Ge(0), Lt(0.5)],
    "algorithm.dpo_log_prob": Literal["sum", "mean"] | None,
    "algorithm.rae.baseline": bool,
    "algorithm.rae.decay": Share,
    "algorithm.rae.initial": float,
    "algorithm.rae.update": Literal["game", "batch"],
    "algorithm.rae.by_opponent": bool,
    "algorithm.lam": Share,
    "algorithm.kl_ctrl.kl_coef": Bound,
    "algorithm.rollout_correction.rollout_is": Literal["token", "sequence"] | None,
    "data.train_batch_size": Count,
    "data.games_per_start": Count,
    "data.max_prompt_length": Count,
    "data.max_response_length": Count,
    "trainer.n_gpus_per_node": Count,
    "trainer.nnodes": Count,
    "trainer.total_training_steps": Count,
    "trainer.max_actor_ckpt_to_keep": Count | None,
    "trainer.resume_mode": Literal["auto", "disable", "resume_path"],
    "trainer.resume_from_path": str | None,
    "trainer.default_local_dir": str,
    "trainer.save_freq": int,
    "trainer.test_freq": int,
    "trainer.log_val_generations": Whole,
    "trainer.weave": str | None,
    "trainer.weave_games": Whole,
    "trainer.v1.trainer_mode": Literal["sync", "colocate_async", "separate_async"],
    "trainer.v1.colocate_async.num_warmup_batches": Bound,
    "trainer.v1.separate_async.num_warmup_batches": Bound,
    # some are links to those above
    f"{_MODEL}.path": str | None,
    f"{_MODEL}.lora_rank": Whole,
    f"{_MODEL}.lora_alpha": Count,
    f"{_ROLLOUT}.temperature": Temperature,
    f"{_ROLLOUT}.top_p": TopP,
    f"{_ROLLOUT}.top_k": TopK,
    f"{_ROLLOUT}.n": Count,
    f"{_ROLLOUT}.val_kwargs.temperature": ValidationTemperature,
    f"{_ROLLOUT}.val_kwargs.top_p": TopP,
    f"{_ROLLOUT}.val_kwargs.top_k": TopK,
    f"{_ROLLOUT}.val_kwargs.n": Count,
    f"{_ROLLOUT}.gpu_memory_utilization": Part,
    f"{_ROLLOUT}.max_model_len": Count,
    f"{_ROLLOUT}.max_num_seqs": Count,
    f"{_ROLLOUT}.max_num_batched_tokens": Count,
    f"{_ROLLOUT}.tensor_model_parallel_size": Count,
    f"{_ROLLOUT}.data_parallel_size": Count,
    f"{_ROLLOUT}.pipeline_model_parallel_size": Count,
    f"{_ROLLOUT}.nnodes": Whole,
    f"{_ROLLOUT}.n_gpus_per_node": Count,
    f"{_ROLLOUT}.agent.num_workers": Whole,
    f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": Count,
    **_optimizer(_ACTOR),
    **_optimizer("critic"),
    f"{_ACTOR}.strategy": Literal["fsdp", "fsdp2"],
    f"{_ACTOR}.clip_ratio": Bound,
    f"{_ACTOR}.clip_ratio_low": Bound,
    f"{_ACTOR}.clip_ratio_high": Bound,
    f"{_ACTOR}.clip_ratio_c": Annotated[float, Gt(1)],
    f"{_ACTOR}.entropy_coeff": Bound,
    f"{_ACTOR}.kl_loss_coef": Bound,
    f"{_ACTOR}.loss_scale_factor": Positive,
    "critic.cliprange_value": Positive,
    "data.dataloader_num_workers": Whole,
    "ray_kwargs.ray_init.num_cpus": Count | None,
    "ray_kwargs.ray_init.num_gpus": Whole | None,
}


def check_values(config: DictConfig) -> None:
    """Check the type and the range of every setting that is described here; ConfigError says what a value must be."""
    for setting, kind in SETTINGS.items():
        _check(config, setting, kind)
    for setting in [setting for setting in SETTINGS if setting.startswith(f"{_ROLLOUT}.")]:
        of_opponents = setting.replace("actor_rollout_ref", "opponent_engine")
        if OmegaConf.select(config, of_opponents) is not None:
            _check(config, of_opponents, SETTINGS[setting])


def _check(config: DictConfig, setting: str, kind: Any) -> None:
    place, _, name = setting.rpartition(".")
    section = OmegaConf.select(config, place) if place else config
    if not isinstance(section, DictConfig):  # not require: writing out each section takes longer than all checks
        raise ConfigError(f"{place}={written(section)}: must be a mapping")
    value = section.get(name)
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    if get_origin(kind) is tuple and isinstance(plain, list):
        plain = tuple(plain)
    try:
        _adapter(kind).validate_python(plain)
    except ValidationError:
        raise ConfigError(f"{setting}={written(value)}: must be {describe(kind)}") from None


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind, config=ConfigDict(strict=True, allow_inf_nan=False))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", list: "a list"}
_SIGNS = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<"}


def describe(kind: Any) -> str:
    """What a value of the type must be, in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [f"{_SIGNS[type(bound)]} {next(iter(asdict(bound).values()))}" for bound in parts[1:]]
        return f"{describe(parts[0])} {' and '.join(bounds)}"
    if origin is Literal:
        choices = [str(choice) for choice in parts if not isinstance(choice, bool)]
        return "one of " * (len(choices) > 1) + ", ".join(choices)
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else describe(part) for part in parts)
    if origin is tuple:
        return f"[{', '.join(map(describe, parts))}]"
    return _WORDS.get(origin or kind, "a mapping")
