"""Sets what follows from other settings, once a config is composed and every name in it is known.

In our YAML files null, 0 or ``auto`` stands for what follows, where a user may set something else. What nobody may set
is not in them; another value there than verl's default is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
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

ENGINE = "recipe.spiral.workers.engine"
_ACTOR, _ROLLOUT, _SAMPLER = "actor_rollout_ref.actor", "actor_rollout_ref.rollout", "trainer.v1.sampler"
_OURS = "SPIRAL's own looks for finished games, and in the asynchronous modes accounts for each"
#: For the dataset, to which verl gives ``data`` alone; these are no settings.
_DATASETS = {
    "data.run_seed": "seed",
    "data.batch_unit": "batch_unit",
    "data.trainer_mode": "trainer.v1.trainer_mode",
    "data.games": "games",
    "data.opponents": "opponents",
    "data.validation": "validation",
    "data.responses": f"{_ROLLOUT}.n",
}
#: Settings of verl's of which one value works, and why.
_FIXED = {
    f"{_ROLLOUT}.name": ("vllm", "no other engine is supported"),
    f"{_ROLLOUT}.agent.default_agent_loop": ("spiral_game", "rows name their agent loops themselves"),
    f"{_ROLLOUT}.calculate_log_probs": (
        True,
        "the entropy that is shown and that the guard watches, and algorithm.rollout_correction, are computed from the "
        "engine's log-probabilities",
    ),
    f"{_ACTOR}.use_prefix_grouper": (
        False,
        "the workers of verl's V1 trainer do not read it; prompts that begin alike are computed for each turn",
    ),
    "algorithm.filter_groups.enable": (
        False,
        "it drops games and launches others for them, of which no record is kept; to leave draws out of the update set "
        "algorithm.filter_draws=true",
    ),
    "algorithm.kl_ctrl.type": (
        "fixed",
        "verl's checkpoints do not hold what the coefficient has become, so that a run that goes on would begin with "
        "algorithm.kl_ctrl.kl_coef again; choose kl_coef",
    ),
    "algorithm.use_pf_ppo": (False, "it draws turns with replacement: they are no longer those that were played"),
    "data.shuffle": (False, "the seed already draws the games at random"),
    "reward.num_workers": (0, "games bring their own rewards"),
    "trainer.total_epochs": (1, "one pass has as many games as the steps need; set trainer.total_training_steps"),
    "trainer.use_v1": (True, "SPIRAL runs on verl's V1 trainer"),
    "trainer.v1.separate_async.parameter_sync_step": (
        1,
        "a step's games are one batch; for more optimizer steps on it set num_mini_batches",
    ),
    "trainer.v1.separate_async.hybrid_rollout.enable_switch": (
        False,
        "the learner's devices have no engine in this mode; with colocate_async both take turns there",
    ),
    f"{_SAMPLER}.sync_refill_failed_groups": (
        False,
        "a game that failed would be replaced without a word, and which games are played would depend on the machine; "
        "a player that fails is given another try anyway",
    ),
    f"{_SAMPLER}.custom_sampler.path": ("pkg://recipe.spiral.training.game_buffer", _OURS),
    **{
        f"skip.{rollout}.enable": (False, "games are played, not read from a file")
        for rollout in ("rollout", "rollout_tq", "async_rollout")
    },
}
#: Settings of verl's that only follow: what to set instead.
_INSTEAD = {
    f"{_ACTOR}.ppo_mini_batch_size": (
        "the number of turns in a batch varies with the games' lengths; set num_mini_batches, the number of optimizer "
        "steps per epoch, instead"
    ),
    f"{_ACTOR}.optim.clip_grad": f"set {_ACTOR}.grad_clip instead",
    "critic.optim.clip_grad": "set critic.grad_clip instead",
    "actor_rollout_ref.hybrid_engine": "it follows from trainer.v1.trainer_mode",
    f"{_ROLLOUT}.checkpoint_engine.custom_backend_module": (
        "an engine of your own is registered by a module of actor_rollout_ref.model.external_lib"
    ),
    "data.gen_batch_size": "it follows from batch_unit; to change how many games a step has set data.train_batch_size",
    f"{_SAMPLER}.max_off_policy_threshold": "set asynchronous.max_staleness instead",
    f"{_SAMPLER}.max_off_policy_strategy": "set asynchronous.on_stale instead",
    f"{_SAMPLER}.custom_sampler.name": _OURS,
}


def settle(config: DictConfig, named: Collection[str] = (), say: Callable[[str], None] = note) -> None:
    """Choose the config's extensions and its runtime, for this process too, and set what follows, in place.

    Args:
        named: those that the command line or a preset names; they cannot be verl's default where that does not work.
        say: is told which extensions are not there.

    Raises:
        ConfigError: a setting that follows from others was set.
        ValueError: the runtime does not go with other settings, or an extension refuses some.
    """
    for extension in extensions.choose(config, say):
        extension.settle(config)
    runtime.tell(config)
    follows, defaults = following(config), dict(walk(packaged(Path(in_verl(VERLS)))))
    values = OmegaConf.to_container(config, resolve=False)
    assert isinstance(values, dict)
    given = dict(walk(values))
    told = {setting: f"must be {written(value)}; {why}" for setting, (value, why) in _FIXED.items()}
    for setting, why in (told | {name: f"cannot be set; {instead}" for name, instead in _INSTEAD.items()}).items():
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
        **{setting: value for setting, (value, _) in _FIXED.items()},
        **{setting: f"${{{other}}}" for setting, other in _DATASETS.items()},
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
    return {**values, **runtime.following(config)}


def _with_ours(libraries: Any) -> Any:
    """The modules that verl's workers import, with SPIRAL's."""
    others = [libraries] if isinstance(libraries, str) else list(libraries or [])
    return [ENGINE, *(name for name in others if name != ENGINE)] if {*others} - {ENGINE} else ENGINE


def _or(value: Any, follows: Any) -> Any:
    return follows if value is None else value


def _sum(*numbers: Any) -> int | None:
    """None: one of them is no number."""
    return sum(numbers) if all(isinstance(number, int) for number in numbers) else None
