"""The settings that a resumed run would have from its checkpoint, whatever the start asks for.

A checkpoint holds more than weights: the optimizer with its rates, the schedule, the generator's state, the dataset's
position, games in flight, a pool. verl restores them without a look at the config. So every such setting is in this
table. What a start asks for is followed, with a line; where that cannot be, the start is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..games import id_of
from ..opponents.fixed_opponents import parse_opponents
from ..rollouts.schedule import parse_games, plays_games, written

#: Whether a checkpoint's state has a say in a setting, for a start with this config.
Where = Callable[[DictConfig, Mapping[str, Any]], object]


def _always(config: DictConfig, state: Mapping[str, Any]) -> bool:
    return True


def _asynchronous(config: DictConfig, state: Mapping[str, Any]) -> bool:
    """Games are in flight."""
    return bool(config.trainer.v1.trainer_mode != "sync")


def _numbered(config: DictConfig, state: Mapping[str, Any]) -> bool:
    """A game's key follows from its place in a batch."""
    return config.batch_unit == "games" or _asynchronous(config, state)


def _pool(config: DictConfig, state: Mapping[str, Any]) -> bool:
    return bool(config.fsp.enabled and state.get("league", {}).get("pool"))


class Kept(NamedTuple):
    """A setting in the table.

    Attributes:
        followed: another value holds from the next step on. Otherwise the start is refused.
        in_forks: so it is too where the checkpoint is another run's, whose records are not gone on with.
    """

    setting: str
    where: Where = _always
    followed: bool = False
    in_forks: bool = True


def _trained(part: str, model: str, fsdp: str, where: Where = _always) -> Iterator[Kept]:
    """The settings of a policy or a critic."""
    of_rate = ("lr_scheduler_type", "warmup_style", "lr_warmup_steps", "lr_warmup_steps_ratio", "min_lr_ratio")
    for name in ("lr", "weight_decay", "betas", *of_rate, "num_cycles", "zero_indexed_step"):
        yield Kept(f"{part}.optim.{name}", where, followed=True)
    for name in ("optimizer", "optimizer_impl", "override_optimizer_config"):
        yield Kept(f"{part}.optim.{name}", where)
    for name in ("fsdp_size", "seed", "use_orig_params", "wrap_policy"):
        yield Kept(f"{part}.{fsdp}.{name}", where)
    for name in ("lora_rank", "lora_alpha", "target_modules", "exclude_modules", "lora_adapter_path"):
        yield Kept(f"{model}.{name}", where)
    yield Kept(f"{part}.strategy", where)


KEPT = (
    Kept("seed"),
    Kept("batch_unit"),
    Kept("games", lambda config, state: plays_games(config), in_forks=False),
    Kept("data.custom_cls.name", in_forks=False),
    Kept("data.train_files", followed=True),
    Kept("data.train_batch_size", _numbered),
    Kept("data.games_per_start", _numbered),
    Kept("actor_rollout_ref.rollout.n", _numbered),
    Kept("data.dataloader_num_workers"),
    Kept("data.sampler.class_path"),
    Kept("trainer.device"),
    Kept("trainer.total_training_steps", followed=True),
    *(Kept(name, followed=True) for name in ("ref_update_freq", "ref_update_rate")),
    *_trained("actor_rollout_ref.actor", "actor_rollout_ref.model", "fsdp_config"),
    *_trained("critic", "critic.model", "fsdp", lambda config, state: bool(state.get("critic"))),
    *(Kept(f"algorithm.rae.{name}", followed=True) for name in ("decay", "update", "baseline", "by_opponent")),
    # where baselines have begun
    Kept("algorithm.rae.initial", lambda config, state: config.algorithm.rae.baseline and state["baselines"]["values"]),
    Kept("fsp.initial", _pool),
    Kept("actor_rollout_ref.model.lora.merge", _pool),
    Kept("fsp.enabled", lambda config, state: _asynchronous(config, state) and not config.fsp.enabled),
    # all members with games in flight are loaded at once
    Kept("fsp.members_per_step", lambda config, state: _asynchronous(config, state) and _pool(config, state)),
    Kept("opponents", _asynchronous),
    Kept("transfer_queue.backend.SimpleStorage.num_data_storage_units", _asynchronous),
    # looked at where the model is: checks/prompts_fit.py
    *(Kept(f"{part}.path", lambda config, state: False) for part in ("actor_rollout_ref.model", "critic.model")),
)
#: What is compared in place of a setting's value.
_COMPARED: dict[str, Callable[[DictConfig], Any]] = {
    "games": lambda config: written(parse_games(config.games, find=id_of)),
    "opponents": lambda config: sorted(each.name for each in parse_opponents(config.opponents) if each.share > 0),
}


def kept_settings(config: DictConfig) -> dict[str, Any]:
    """The values of all of them that a config has, as JSON has them."""
    values: dict[str, Any] = {}
    for setting in [kept.setting for kept in KEPT]:
        try:
            value = OmegaConf.select(config, setting, default=values)
            if value is not values:
                value = _COMPARED[setting](config) if setting in _COMPARED else value
                values[setting] = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
        except (OmegaConfBaseException, ValueError, ImportError):  # of a config that a run's folder keeps
            continue
    return values


def of_baselines(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``algorithm.rae``, by their last names."""
    section = "algorithm.rae."
    return {name.removeprefix(section): value for name, value in settings.items() if name.startswith(section)}
