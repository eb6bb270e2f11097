"""The type and the range of each of SPIRAL's own settings; the comments in ``config/spiral_trainer.yaml`` say what
they do.

Lists of games and opponents, the rules and the prompts are parsed where they are used, with messages of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt
from omegaconf import DictConfig, OmegaConf
from pydantic import BaseModel, ConfigDict, ValidationError

from ..opponents.pool import Keep, Sample
from .errors import ConfigError

Count = Annotated[int, Ge(1)]
Whole = Annotated[int, Ge(0)]
Share = Annotated[float, Ge(0), Le(1)]
Positive = Annotated[float, Gt(0)]
Bound = Annotated[float, Ge(0)]
#: vLLM raises a lower temperature to 0.01 and refuses a higher one; 0 stands for the most likely tokens.
Temperature = Annotated[float, Ge(0.01), Le(2)]
ValidationTemperature = Annotated[float, Ge(0), Le(2)]


class Section(BaseModel):
    """A part of the config. Keys that are not fields are verl's, or parsed elsewhere."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False)


class Rae(Section):
    baseline: bool
    decay: Share
    initial: float
    update: Literal["game", "batch"]
    by_opponent: bool


class Algorithm(Section):
    gamma: Annotated[float, Gt(0), Le(1)]
    reward_scale: Positive
    filter_zero_advantages: bool
    filter_draws: bool
    dpo_beta: Positive
    dpo_loss_type: Literal["sigmoid", "ipo", "hinge"]
    dpo_label_smoothing: Annotated[float, Ge(0), Lt(0.5)]
    dpo_log_prob: Literal["sum", "mean"] | None
    rae: Rae


class Fsp(Section):
    enabled: bool
    ratio: Share
    size: Count
    start_from: Whole
    update_interval: Count | None
    keep: Keep
    sample: Sample
    members_per_step: Count
    initial: list[Any]
    on_missing: Literal["leave_out", "stop"]


class OpponentEngine(Section):
    devices: Literal["shared", "own"]
    replicas: Count | None
    sleep_level: Literal[1, 2] | None
    gpu_memory_utilization: Annotated[float, Gt(0), Lt(1)]
    kv_cache_memory_bytes: Count | None
    rollout: dict[str, Any]


class DrawRetry(Section):
    enabled: bool
    max_retries: Count
    swap: bool
    temperature: Temperature | None


class Asynchronous(Section):
    max_staleness: Whole | None
    on_stale: Literal["wait", "drop"]


class WarmUp(Section):
    num_warmup_batches: Bound


class V1(Section):
    trainer_mode: Literal["sync", "colocate_async", "separate_async"]
    colocate_async: WarmUp
    separate_async: WarmUp


class Validation(Section):
    games_per_role: Count
    questions: Count | None
    died_out_below: Share


class Branching(Section):
    states: Whole
    continuations: Count


class Questions(Section):
    grader: str
    seconds: Positive
    workers: Count


class Records(Section):
    every: Whole
    tokens: bool


class Checkpoint(Section):
    on_full_disk: Literal["stop", "go_on"]


class Memory(Section):
    device_gib: Positive | None
    on_excess: Literal["stop", "warn"]


class Guard(Section):
    # YAML reads a plain off as false
    action: Literal["warn", "stop", "off", False]
    window: Count
    patience: Count
    shorter: Bound | None
    short_reasoning: Bound | None
    reasoning_chars: Whole
    entropy_low: Bound | None
    entropy_high: Bound | None
    role_imbalance: Bound | None
    invalid: Bound | None
    grad_norm: Bound | None


class Data(Section):
    train_batch_size: Count
    games_per_start: Count
    max_prompt_length: Count
    max_response_length: Count


class ValKwargs(Section):
    temperature: ValidationTemperature


class Rollout(Section):
    temperature: Temperature
    val_kwargs: ValKwargs


class Model(Section):
    path: str | None


class ActorRolloutRef(Section):
    model: Model
    rollout: Rollout


class Trainer(Section):
    v1: V1
    n_gpus_per_node: Count
    nnodes: Count
    total_training_steps: Count
    max_actor_ckpt_to_keep: Count | None
    resume_mode: Literal["auto", "disable", "resume_path"]
    resume_from_path: str | None
    default_local_dir: str
    save_freq: int
    test_freq: int
    log_val_generations: Whole
    weave: str | None
    weave_games: Whole


class Spiral(Section):
    seed: Whole
    determinism: bool
    measured_in: Literal["float32"] | None
    batch_unit: Literal["games", "turns"]
    num_mini_batches: Count
    ref_update_freq: Count | None
    embedded_model: str | None
    run_dir: str
    jobs_at_once: Count
    poll_interval: Positive
    batch_requests: bool
    verbose: bool
    fsp: Fsp
    opponent_engine: OpponentEngine
    draw_retry: DrawRetry
    asynchronous: Asynchronous
    branching: Branching
    questions: Questions
    validation: Validation
    records: Records
    memory: Memory
    dry_run: bool
    checkpoint: Checkpoint
    guard: Guard
    algorithm: Algorithm
    actor_rollout_ref: ActorRolloutRef
    data: Data
    trainer: Trainer


def check_values(config: DictConfig) -> None:
    """Check the type and the range of every setting that is described here.

    Raises:
        ConfigError: one is wrong; the message names it, its value, and what it must be.
    """
    try:
        Spiral.model_validate(_values(Spiral, config))
    except ValidationError as error:
        place = ".".join(str(part) for part in error.errors()[0]["loc"])
        setting, kind = next((name, kind) for name, kind in fields_of(Spiral) if f"{place}.".startswith(f"{name}."))
        value = written(OmegaConf.select(config, setting))
        raise ConfigError(f"{setting}={value}: must be {describe(kind)}") from None


def _values(section: type[Section], config: DictConfig) -> dict[str, Any]:
    """The values of a section's fields, with interpolations resolved."""
    values = {}
    for name, field in section.model_fields.items():
        value = config.get(name)
        if is_section(field.annotation) and isinstance(value, DictConfig):
            value = _values(field.annotation, value)
        values[name] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    return values


def is_section(kind: Any) -> TypeGuard[type[Section]]:
    return isinstance(kind, type) and issubclass(kind, Section)


def fields_of(section: type[Section], place: str = "") -> Iterator[tuple[str, Any]]:
    """Each setting by its whole name, with its annotation; a section comes after what is in it."""
    for name, kind in get_type_hints(section, include_extras=True).items():
        if name in section.model_fields:
            if is_section(kind):
                yield from fields_of(kind, f"{place}{name}.")
            yield f"{place}{name}", kind


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text", list: "a list"}
_SIGNS = {Ge: ">=", Gt: ">", Le: "<=", Lt: "<"}


def describe(kind: Any) -> str:
    """What a value of the type must be, in words."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        bounds = [f"{_SIGNS[type(bound)]} {next(iter(asdict(bound).values()))}" for bound in parts[1:]]
        return f"{describe(parts[0])} {' and '.join(bounds)}"
    if origin is Literal:
        return f"one of {', '.join(choice for choice in parts if isinstance(choice, str))}"
    if origin in (Union, UnionType):
        return " or ".join("null" if part is NoneType else describe(part) for part in parts)
    return _WORDS.get(origin or kind, "a mapping")


def written(value: Any) -> str:
    """A value as it stands on a command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
