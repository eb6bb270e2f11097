"""Sets what follows from other settings, once a config is composed and every name in it is known.

In our YAML files null, 0 or ``auto`` stands for what follows, where a user may set something else. What nobody may set
is not in them, but ``fixed`` or ``instead`` in ``settings.yaml``; another value there than verl's default is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from omegaconf import DictConfig, OmegaConf

from .. import extensions
from ..processes.starting import bypass_mode, rollout_is
from ..processes.terminal import note
from .errors import require, written
from .names import TABLES, verls_defaults, walk

ENGINE = "recipe.spiral.workers.engine"
_EXECUTOR = "actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend"
_ACTOR, _ROLLOUT, _SAMPLER = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "trainer.v1.sampler"


def settle(config: DictConfig, named: Collection[str] = (), say: Callable[[str], None] = note) -> None:
    """Choose the config's extensions, for this process too, and set what follows, in place.

    Args:
        named: those that the command line or a preset names; they cannot be verl's default where that does not work.
        say: is told which extensions are not there.

    Raises:
        ConfigError: a setting that follows from others was set.
        ValueError: an extension refuses some.
    """
    extensions.choose(config, say)
    follows, defaults = following(config), verls_defaults()
    values = OmegaConf.to_container(config, resolve=False)
    assert isinstance(values, dict)
    given = dict(walk(values))
    told = {setting: f"must be {written(only['value'])}; {only['why']}" for setting, only in TABLES["fixed"].items()}
    told |= {setting: f"cannot be set; {instead}" for setting, instead in TABLES["instead"].items()}
    for setting, why in told.items():
        value, verls = given.get(setting), defaults[setting]
        passes = value in (None, follows[setting]) or (value == verls and setting not in named)
        require(passes, f"{setting}={written(value)}: {why}")
    nodes = config.actor_rollout_ref.rollout.nnodes
    require(
        nodes == 0 or config.trainer.v1.trainer_mode == "separate_async",
        f"{_ROLLOUT}.nnodes={written(nodes)}: the engine has machines of its own only with "
        "trainer.v1.trainer_mode=separate_async; take 0",
    )
    for setting, value in follows.items():
        OmegaConf.update(config, setting, value, force_add=True)


def following(config: DictConfig) -> dict[str, Any]:
    """Each setting that may follow from others, with its value: the user's own, where that is possible. Types and
    ranges are not checked yet."""
    rollout, actor, data = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor, config.data
    mode, cpu = config.trainer.v1.trainer_mode, config.trainer.device == "cpu"
    separate, exact = mode == "separate_async", bool(config.determinism)
    nodes = (rollout.nnodes or 1) if separate else 0
    backend = rollout.checkpoint_engine.backend
    if separate and backend == "naive":
        backend = "file" if cpu else "nccl"
    values = {
        **{setting: only["value"] for setting, only in TABLES["fixed"].items()},
        **{setting: f"${{{other}}}" for setting, other in TABLES["links"].items()},
        f"{_ACTOR}.ppo_mini_batch_size": "${data.train_batch_size}",
        f"{_ACTOR}.optim.clip_grad": f"${{{_ACTOR}.grad_clip}}",
        f"{_ACTOR}.ppo_max_token_len_per_gpu": _or(actor.ppo_max_token_len_per_gpu, 16384),
        f"{_ACTOR}.loss_scale_factor": _or(actor.loss_scale_factor, "${data.max_response_length}"),
        f"{_ACTOR}.fsdp_config.full_determinism": exact or actor.fsdp_config.full_determinism,
        "actor_rollout_ref.hybrid_engine": not separate,
        "actor_rollout_ref.model.external_lib": _with_ours(config.actor_rollout_ref.model.external_lib),
        # on a CPU it would take kernels of vLLM's that are for CUDA
        f"{_ROLLOUT}.full_determinism": (exact and not cpu) or rollout.full_determinism,
        f"{_ROLLOUT}.enable_prefix_caching": not exact and rollout.enable_prefix_caching,
        f"{_ROLLOUT}.max_model_len": _or(rollout.max_model_len, _sum(data.max_prompt_length, data.max_response_length)),
        f"{_ROLLOUT}.nnodes": nodes,
        f"{_ROLLOUT}.checkpoint_engine.backend": backend,
        f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": f"{ENGINE}.receiving" if separate else None,
        "critic.optim.clip_grad": "${critic.grad_clip}",
        "critic.fsdp.full_determinism": exact or config.critic.fsdp.full_determinism,
        "algorithm.rollout_correction.bypass_mode": bypass_mode(config),
        "algorithm.rollout_correction.rollout_is": rollout_is(config),
        "data.gen_batch_size": 1 if config.batch_unit == "turns" else None,
        f"{_SAMPLER}.max_off_policy_threshold": _sum(config.asynchronous.max_staleness, 1),
        f"{_SAMPLER}.max_off_policy_strategy": "${asynchronous.on_stale}",
        f"{_SAMPLER}.custom_sampler.name": "RestingBuffer" if mode == "sync" else "GameBuffer",
    }
    if cpu:  # where Ray only counts devices
        apart = [rollout.n_gpus_per_node] * (nodes if isinstance(nodes, int) else 0)
        given, needed = config.ray_kwargs.ray_init.get("num_gpus"), _sum(config.trainer.n_gpus_per_node, *apart)
        values["ray_kwargs.ray_init.num_gpus"] = _or(given, needed)
        # in the engine's own process the first rank of several would wait for the others, for half an hour
        sizes = [f"{kind}_parallel_size" for kind in ("tensor_model", "pipeline_model")]
        wide = any(part.get(size, 1) != 1 for part in (rollout, config.opponent_engine.rollout) for size in sizes)
        executor = OmegaConf.select(config, _EXECUTOR)
        values[_EXECUTOR] = "mp" if wide and str(executor).endswith("UniProcExecutor") else executor
    return values


def idle(config: DictConfig, named: Collection[str]) -> Iterator[str]:
    """A line for those of the settings that do nothing, because another one switches off what they belong to."""
    for part, switch in TABLES["switches"].items():
        switch, _, needed = switch.partition("=")
        of_part = [name for name in named if f"{name}.".startswith(f"{part}.") and name != switch]
        off = OmegaConf.select(config, switch)
        on = written(off) in needed.split("|") if needed else off not in (False, None, "sync", "auto", "disable")
        if of_part and not on:
            yield f"without effect, with {switch}={written(off)}: {', '.join(of_part)}"


def _with_ours(libraries: Any) -> Any:
    """The modules that verl's workers import, with SPIRAL's."""
    others = libraries if OmegaConf.is_list(libraries) else [] if libraries is None else [libraries]
    for name in others:
        there = None
        with suppress(ImportError, ValueError):  # of the package that it is in; of what is no name
            there = find_spec(str(name))
        mend = "install it, or start where it lies"
        require(there is not None, f"actor_rollout_ref.model.external_lib={name}: there is no such module; {mend}")
    return [ENGINE, *(name for name in others if name != ENGINE)] if {*others} - {ENGINE} else ENGINE


def _or(value: Any, follows: Any) -> Any:
    return follows if value is None else value


def _sum(*numbers: Any) -> int | None:
    """None: one of them is no number."""
    return sum(numbers) if all(isinstance(number, int) for number in numbers) else None
