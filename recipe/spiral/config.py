"""SPIRAL's settings: the type of each, the range of those that have one, and how one is refused.

Hydra merges ``Spiral`` into verl's config before ``config/spiral_trainer.yaml``, which has the defaults and says what
each setting does. So Hydra refuses a value of another type, and a name that is not there, also in a preset.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf

#: As ``defaults`` in the YAML calls it.
SCHEMA = "spiral_schema"
#: A number that is above 0.
_POSITIVE = 1e-9


def within(least: float, most: float = math.inf, **default: Any) -> Any:
    """A field, perhaps with a ``default``: a number from ``least`` to ``most``, or null where its type allows that."""
    return field(metadata={"within": (least, most)}, **default)


# Words of which one is chosen.
BatchUnit = StrEnum("BatchUnit", "games turns")
Truncated = StrEnum("Truncated", "illegal mask read")
Style = StrEnum("Style", "state dialogue")
Sample = StrEnum("Sample", "uniform hard")
Devices = StrEnum("Devices", "shared own")
OnStale = StrEnum("OnStale", "wait drop")
Update = StrEnum("Update", "game batch")


@dataclass
class Rules:
    illegal_rewards: list[float]
    truncated: Truncated
    turn_cap: int | None = within(1)


@dataclass
class Prompt:
    template: str
    style: Style


@dataclass
class Pool:
    enabled: bool
    sample: Sample
    initial: list[str]
    ratio: float = within(0, 1)
    size: int = within(1)
    start_from: int = within(0)
    update_interval: int | None = within(1)
    members_per_step: int = within(1)


@dataclass
class OpponentEngine:
    devices: Devices
    gpu_memory_utilization: float = within(_POSITIVE, 1)


@dataclass
class DrawRetry:
    enabled: bool
    max_retries: int = within(1)


@dataclass
class Asynchronous:
    on_stale: OnStale
    max_staleness: int | None = within(0)


@dataclass
class Validation:
    games: list[Any] | None
    opponents: list[str]
    games_per_role: int = within(1)


@dataclass
class Records:
    every: int = within(0)


@dataclass
class Baselines:
    baseline: bool
    by_opponent: bool
    update: Update
    initial: float
    decay: float = within(0, 1)


@dataclass
class Algorithm:
    """Beside verl's settings of the section, as in the next two."""

    rae: Baselines
    filter_zero_advantages: bool
    filter_draws: bool
    gamma: float = within(0, 1)
    reward_scale: float = within(_POSITIVE)


@dataclass
class Data:
    games_per_start: int = within(1)
    train_batch_size: int = within(1)
    max_prompt_length: int = within(1)
    max_response_length: int = within(1)


@dataclass
class Trainer:
    project_name: str
    experiment_name: str
    val_before_train: bool
    default_local_dir: str
    total_training_steps: int | None = within(1)  # verl's own default is null
    save_freq: int = within(-1)
    test_freq: int = within(-1)
    max_actor_ckpt_to_keep: int | None = within(1)
    n_gpus_per_node: int = within(1)
    nnodes: int = within(1)


@dataclass
class Spiral:
    environment: dict[str, str | None]
    games: list[Any]
    opponents: list[Any]
    extensions: list[str]
    run_dir: str
    batch_unit: BatchUnit
    rules: Rules
    prompt: Prompt
    fsp: Pool
    opponent_engine: OpponentEngine
    draw_retry: DrawRetry
    asynchronous: Asynchronous
    validation: Validation
    records: Records
    algorithm: Algorithm
    data: Data
    trainer: Trainer
    seed: int = within(0)
    num_mini_batches: int = within(1)
    ref_update_freq: int | None = within(1)
    ref_update_rate: float = within(_POSITIVE, 1)


ConfigStore.instance().store(name=SCHEMA, node=Spiral)


# Those of ours that are there: each adds the schema of its settings.
for _part, _settings in (("lab", "extension"), ("spin", "spin_settings")):
    if importlib.util.find_spec(f"{__package__}.{_part}") is not None:
        importlib.import_module(f"{__package__}.{_part}.{_settings}")


def out_of_range(config: DictConfig, place: str = "") -> Iterator[str]:
    """What is wrong with numbers in the typed sections of a composed config."""
    kind = OmegaConf.get_type(config)
    ranges = {each.name: each.metadata.get("within") for each in fields(kind)} if is_dataclass(kind) else {}
    for key in map(str, config):
        if OmegaConf.is_missing(config, key) or OmegaConf.is_interpolation(config, key):
            continue
        value, bounds = config[key], ranges.get(key)
        if isinstance(value, DictConfig) and is_dataclass(OmegaConf.get_type(value)):
            yield from out_of_range(value, f"{place}{key}.")
        elif value is not None and bounds is not None and not bounds[0] <= value <= bounds[1]:
            least, most = bounds
            wanted = f"at least {least}" if most == math.inf else f"from {least} to {most}"
            yield f"{place}{key}={value}: must be {wanted}"


def require(condition: bool, message: str) -> None:
    """Refuse a setting, which the message names with its value and the mend. Raises ValueError: the condition does not
    hold."""
    if not condition:
        raise ValueError(message)


def written(value: Any) -> str:
    """A value as it stands on a command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
