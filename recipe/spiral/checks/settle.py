"""Sets what follows from other settings, once a config is composed and every name in it is known.

In our YAML files null, or ``auto``, stands for what follows where a user may set something else. What verl needs and
nobody may set is not in them, and another value of it than verl's default is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from .. import extensions
from ..processes import runtime
from ..processes.composing import in_verl
from ..processes.starting import rollout_is
from ..processes.terminal import note
from .errors import require, written
from .names import VERLS, packaged, walk

_ACTOR, _ROLLOUT, _SAMPLER = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "trainer.v1.sampler"
_OURS = "SPIRAL's own looks for finished games, and in the asynchronous modes accounts for each"
#: Settings that are always another one's value; ``data`` is all that verl gives to datasets.
_LINKS = {
    "data.run_seed": "seed",
    "data.batch_unit": "batch_unit",
    "data.trainer_mode": "trainer.v1.trainer_mode",
    "data.games": "games",
    "data.opponents": "opponents",
    "data.validation": "validation",
    "data.responses": f"{_ROLLOUT}.n",
    f"{_ACTOR}.ppo_mini_batch_size": "data.train_batch_size",
    f"{_ACTOR}.optim.clip_grad": f"{_ACTOR}.grad_clip",
    "critic.optim.clip_grad": "critic.grad_clip",
    f"{_SAMPLER}.max_off_policy_strategy": "asynchronous.on_stale",
}
#: Settings of verl's that nobody sets: why, and what to set instead.
_INSTEAD = {
    "data.gen_batch_size": "it follows from batch_unit; to change how many games a step has set data.train_batch_size",
    "actor_rollout_ref.hybrid_engine": "it follows from trainer.v1.trainer_mode",
    f"{_ACTOR}.ppo_mini_batch_size": (
        "the number of turns in a batch varies with the games' lengths; set num_mini_batches, the number of optimizer "
        "steps per epoch, instead"
    ),
    f"{_ACTOR}.optim.clip_grad": f"set {_ACTOR}.grad_clip instead",
    "critic.optim.clip_grad": "set critic.grad_clip instead",
    f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": (
        "an engine of your own is registered by a module of actor_rollout_ref.model.external_lib"
    ),
    f"{_SAMPLER}.max_off_policy_threshold": "set asynchronous.max_staleness instead",
    f"{_SAMPLER}.max_off_policy_strategy": "set asynchronous.on_stale instead",
    f"{_SAMPLER}.custom_sampler.path": _OURS,
    f"{_SAMPLER}.custom_sampler.name": _OURS,
}


def settle(config: DictConfig, say: Callable[[str], None] = note) -> None:
    """Choose the config's extensions and its runtime, for this process too, and set what follows, in place; once for a
    config that was composed. ``say`` is told which extensions are not there.

    Raises:
        ConfigError: a setting that follows from others was set.
        ValueError: the runtime does not go with other settings, or an extension refuses some.
    """
    for extension in extensions.choose(config, say):
        extension.settle(config)
    verls = dict(walk(packaged(Path(in_verl(VERLS)))))
    for setting, instead in _INSTEAD.items():
        value = OmegaConf.select(config, setting)
        require(value == verls[setting], f"{setting}={written(value)}: cannot be set; {instead}")
    nodes = config.actor_rollout_ref.rollout.nnodes
    require(
        nodes == 0 or config.trainer.v1.trainer_mode == "separate_async",
        f"{_ROLLOUT}.nnodes={written(nodes)}: the engine has machines of its own only with "
        "trainer.v1.trainer_mode=separate_async; take 0",
    )
    runtime.tell(config)
    for setting, value in following(config).items():
        OmegaConf.update(config, setting, value, force_add=True)


def following(config: DictConfig) -> dict[str, Any]:
    """Each setting that may follow from others, with its value. Types and ranges are not checked yet."""
    rollout, actor, data = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor, config.data
    mode, cpu = config.trainer.v1.trainer_mode, config.trainer.device == "cpu"
    separate, exact = mode == "separate_async", bool(config.determinism)
    turn = _sum(data.max_prompt_length, data.max_response_length)
    nodes = (rollout.nnodes or 1) if separate else 0
    backend = rollout.checkpoint_engine.backend
    if separate and backend == "naive":
        backend = "file" if cpu else "nccl"
    values = {
        "actor_rollout_ref.hybrid_engine": not separate,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": _or(actor.ppo_max_token_len_per_gpu, 16384),
        f"{_ACTOR}.loss_scale_factor": _or(actor.loss_scale_factor, "${data.max_response_length}"),
        f"{_ACTOR}.fsdp_config.full_determinism": exact or actor.fsdp_config.full_determinism,
        "critic.fsdp.full_determinism": exact or config.critic.fsdp.full_determinism,
        # on a CPU it would take kernels of vLLM's that are for CUDA
        f"{_ROLLOUT}.full_determinism": (exact and not cpu) or rollout.full_determinism,
        f"{_ROLLOUT}.enable_prefix_caching": not exact and rollout.enable_prefix_caching,
        f"{_ROLLOUT}.max_model_len": _or(rollout.max_model_len, turn),
        f"{_ROLLOUT}.nnodes": nodes,
        f"{_ROLLOUT}.checkpoint_engine.backend": backend,
        f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": (
            "recipe.spiral.workers.engine.receiving" if separate else None
        ),
        "algorithm.rollout_correction.rollout_is": rollout_is(config),
        "data.gen_batch_size": 1 if config.batch_unit == "turns" else None,
        f"{_SAMPLER}.max_off_policy_threshold": _sum(config.asynchronous.max_staleness, 1),
        f"{_SAMPLER}.custom_sampler.path": "pkg://recipe.spiral.training.game_buffer",
        f"{_SAMPLER}.custom_sampler.name": "RestingBuffer" if mode == "sync" else "GameBuffer",
    }
    if cpu:  # where Ray only counts devices
        apart = [rollout.n_gpus_per_node] * (nodes if isinstance(nodes, int) else 0)
        given, needed = config.ray_kwargs.ray_init.get("num_gpus"), _sum(config.trainer.n_gpus_per_node, *apart)
        values["ray_kwargs.ray_init.num_gpus"] = _or(given, needed)
    links = {setting: f"${{{other}}}" for setting, other in _LINKS.items()}
    return {**links, **values, **runtime.following(config)}


def _or(value: Any, follows: Any) -> Any:
    return follows if value is None else value


def _sum(*numbers: Any) -> int | None:
    """None: one of them is no number."""
    return sum(numbers) if all(isinstance(number, int) for number in numbers) else None
