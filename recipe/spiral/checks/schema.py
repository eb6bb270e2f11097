"""The type and the range of each of SPIRAL's own settings; the comments in ``config/spiral_trainer.yaml`` say what
they do.

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

#: What a value of each setting must be. Settings that are not here are verl's, or parsed elsewhere.
SETTINGS: dict[str, Any] = {
    "seed": Whole,
    "determinism": bool,
    "measured_in": Literal["float32"] | None,
    "batch_unit": Literal["games", "turns"],
    "num_mini_batches": Count,
    "ref_update_freq": Count | None,
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
    "opponent_engine.gpu_memory_utilization": Annotated[float, Gt(0), Lt(1)],
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
    "actor_rollout_ref.model.path": str | None,
    "actor_rollout_ref.rollout.temperature": Temperature,
    "actor_rollout_ref.rollout.val_kwargs.temperature": ValidationTemperature,
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
}


def check_values(config: DictConfig) -> None:
    """Check the type and the range of every setting that is described here; ConfigError says what a value must be."""
    for setting, kind in SETTINGS.items():
        place, _, name = setting.rpartition(".")
        section = OmegaConf.select(config, place) if place else config
        if not isinstance(section, DictConfig):  # not require: writing out each section takes longer than all checks
            raise ConfigError(f"{place}={written(section)}: must be a mapping")
        value = section.get(name)
        try:
            _adapter(kind).validate_python(OmegaConf.to_container(value) if OmegaConf.is_config(value) else value)
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
        return f"one of {', '.join(str(choice) for choice in parts if not isinstance(choice, bool))}"
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else describe(part) for part in parts)
    return _WORDS.get(origin or kind, "a mapping")
