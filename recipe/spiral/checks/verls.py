"""Refuses values that verl would accept and that SPIRAL cannot work with, also in the asynchronous modes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..opponents.engine_settings import has_adapter
from ..opponents.league import League
from ..processes.composing import PACKED, TORCHS, in_verl
from .errors import require, written
from .names import CONFIG, FREE, VERLS, annotated_fields, packaged, walk
from .schema import SETTINGS

ENGINE = "recipe.spiral.workers.engine"
_MODE = "trainer.v1.trainer_mode"
_CORRECTION = "algorithm.rollout_correction"
#: verl's default is a number, and a text is understood as well: "0.5_2.0".
_NUMBERS_OR_TEXT = (f"{_CORRECTION}.rollout_is_threshold",)
_KL = tuple(f"{name}{plus}" for name in ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3") for plus in ("", "+"))
_SCHEDULES = ("constant", "cosine")
#: What verl knows of some settings that are names. It would refuse another one in a worker, or without a word.
CHOICES = {
    "actor_rollout_ref.actor.strategy": ("fsdp", "fsdp2"),
    "actor_rollout_ref.actor.loss_agg_mode": (
        *("token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"),
    ),
    "actor_rollout_ref.actor.kl_loss_type": _KL,
    "algorithm.kl_penalty": _KL,
    "actor_rollout_ref.actor.optim.lr_scheduler_type": _SCHEDULES,
    "critic.optim.lr_scheduler_type": _SCHEDULES,
    "trainer.logger": (
        *("console", "file", "tensorboard", "wandb", "mlflow", "swanlab", "vemlp_wandb", "clearml", "trackio"),
        *("rl_insight", "tracking"),
    ),
}

_MODES = ("sync", "colocate_async", "separate_async")
_ONE_BATCH = "a step's games are one batch; for more optimizer steps on it set num_mini_batches"
_PLAYED = "games are played, not read from a file"
#: Settings that must be false: why, and what to do instead.
_OFF = {
    "data.shuffle": "the seed already draws the games at random",
    "trainer.v1.separate_async.hybrid_rollout.enable_switch": (
        "the learner's devices have no engine in this mode; with colocate_async both take turns there"
    ),
    "trainer.v1.sampler.sync_refill_failed_groups": (
        "a game that failed would be replaced without a word, and which games are played would depend on the machine; "
        "a player that fails is given another try anyway"
    ),
    "algorithm.filter_groups.enable": (
        "it drops games and launches others for them, of which no record is kept; to leave draws out of the update set "
        "algorithm.filter_draws=true"
    ),
    "actor_rollout_ref.actor.use_prefix_grouper": (
        "the workers of verl's V1 trainer do not read it; prompts that begin alike are computed for each turn"
    ),
    "algorithm.use_pf_ppo": "it draws turns with replacement, which then are no longer those that were played",
    **{f"skip.{rollout}.enable": _PLAYED for rollout in ("rollout", "rollout_tq", "async_rollout")},
}
#: (setting, the only value that works, why and what to do instead). A setting that is absent is in order.
_FIXED: Sequence[tuple[str, Any, str]] = (
    *((setting, False, why) for setting, why in _OFF.items()),
    ("actor_rollout_ref.rollout.name", "vllm", "no other engine is supported"),
    (
        "actor_rollout_ref.rollout.calculate_log_probs",
        True,
        "the entropy that is shown and that the guard watches, and algorithm.rollout_correction, are computed from the "
        "engine's log-probabilities",
    ),
    ("trainer.use_v1", True, "SPIRAL runs on verl's V1 trainer"),
    *((f"trainer.v1.{mode}.parameter_sync_step", 1, _ONE_BATCH) for mode in _MODES),
    (
        "algorithm.kl_ctrl.type",
        "fixed",
        "verl's checkpoints do not hold what the coefficient has become, so that a run that goes on would begin with "
        "algorithm.kl_ctrl.kl_coef again; choose kl_coef",
    ),
)

_SAMPLER = "SPIRAL's own looks for finished games, and in the asynchronous modes accounts for each"
#: Settings that only pass on others, and must be the links that they are in ``config/spiral_trainer.yaml``; and what to
#: set instead.
_HANDED_ON = {
    "data.run_seed": "set seed instead",
    "data.batch_unit": "set batch_unit instead",
    "data.trainer_mode": "set trainer.v1.trainer_mode instead",
    "data.games": "set games instead",
    "data.opponents": "set opponents instead",
    "data.validation": "set validation.games, validation.opponents or validation.benchmarks instead",
    "data.gen_batch_size": "it follows from batch_unit; to change how many games a step has set data.train_batch_size",
    "trainer.v1.sampler.max_off_policy_threshold": "set asynchronous.max_staleness instead",
    "trainer.v1.sampler.max_off_policy_strategy": "set asynchronous.on_stale instead",
    "trainer.v1.sampler.custom_sampler.path": _SAMPLER,
    "trainer.v1.sampler.custom_sampler.name": _SAMPLER,
    "actor_rollout_ref.hybrid_engine": "it follows from trainer.v1.trainer_mode",
    "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module": (
        "an engine of your own is registered by a module of actor_rollout_ref.model.external_lib"
    ),
    "data.responses": "set actor_rollout_ref.rollout.n instead",
    "actor_rollout_ref.actor.optim.clip_grad": "set actor_rollout_ref.actor.grad_clip instead",
    "critic.optim.clip_grad": "set critic.grad_clip instead",
}


def _fixed(config: DictConfig) -> None:
    for setting, fixed, why in _FIXED:
        value = OmegaConf.select(config, setting, default=fixed)
        require(value == fixed, f"{setting}={written(value)}: must be {written(fixed)}; {why}")


def check_links(values: Mapping[str, Any]) -> None:
    """Refuse another value of a setting that only passes on others."""
    links = dict(walk(packaged(CONFIG / "spiral_trainer.yaml")))
    for name, instead in _HANDED_ON.items():
        value = values.get(name)
        require(value == links[name], f"{name}={written(value)}: cannot be set; {instead}")


def _libraries(config: DictConfig) -> None:
    libraries = config.actor_rollout_ref.model.external_lib
    require(
        ENGINE in ([libraries] if isinstance(libraries, str) else list(libraries or [])),
        f"actor_rollout_ref.model.external_lib={libraries}: must name {ENGINE}, too: [{ENGINE}, ...]",
    )


def _correction(config: DictConfig) -> None:
    """Check what verl would refuse only after the first games, or ignore silently."""
    correction = config.algorithm.rollout_correction
    for name in ("rollout_is", "rollout_rs"):
        require(
            not correction.bypass_mode or correction[name] is None,
            f"{_CORRECTION}.{name}={correction[name]}: does nothing with {_CORRECTION}.bypass_mode=true, which has no "
            f"log-probabilities of the trainer's own; set one of the two, {name}=null or bypass_mode=false",
        )
    require(
        correction.rollout_rs is None or correction.rollout_rs_threshold is not None,
        f"{_CORRECTION}.rollout_rs={correction.rollout_rs}: needs a bound; set {_CORRECTION}.rollout_rs_threshold",
    )


def has_critic(config: DictConfig) -> bool:
    """The same as verl's ``need_critic``, which cannot be imported yet."""
    enabled = config.critic.enable
    return bool(enabled) if enabled is not None else config.algorithm.adv_estimator == "gae"


def check_kinds(values: Mapping[str, Any]) -> None:
    """Refuse what is no boolean or no number where verl has one: verl takes any text for true, and where a number must
    be, text or null fails only in a worker."""
    defaults = dict(walk(packaged(Path(in_verl(VERLS)))))
    for setting, default in defaults.items():
        value = values.get(setting, default)
        linked = isinstance(value, str) and "${" in value  # to a setting that is looked at itself
        if linked or setting in _NUMBERS_OR_TEXT:
            continue
        if value is None:
            section, _, name = setting.rpartition(".")
            of_verl = annotated_fields(defaults.get(f"{section}._target_")).get(name, "")
            if setting in SETTINGS or "Optional" in of_verl or "None" in of_verl or FREE & {*section.split(".")}:
                continue
        if isinstance(default, bool):
            require(isinstance(value, bool), f"{setting}={written(value)}: must be true or false")
        elif isinstance(default, int | float):
            number = isinstance(value, int | float) and not isinstance(value, bool)
            require(number, f"{setting}={written(value)}: must be a number")


def _choices(config: DictConfig) -> None:
    for setting, known in CHOICES.items():
        value = OmegaConf.select(config, setting)
        for name in [value] if isinstance(value, str) or not isinstance(value, Iterable) else value:
            near = get_close_matches(str(name), known, n=1)
            meant = f"did you mean {near[0]}? " if near else ""
            require(name in known, f"{setting}={written(name)}: unknown; {meant}known: {', '.join(known)}")


def _packed_rows(config: DictConfig) -> None:
    """Attention of packed rows needs packed rows; of padded ones it would not know the padding."""
    for name in ("actor_rollout_ref.model", *(["critic.model"] if has_critic(config) else [])):
        model = OmegaConf.select(config, name)
        require(
            model.use_remove_padding or model.override_config.get("attn_implementation") != PACKED,
            f"{name}.override_config.attn_implementation={PACKED}: computes packed rows only; take "
            f"{TORCHS} with {name}.use_remove_padding=false",
        )


def _asynchronous(config: DictConfig) -> None:
    """What the asynchronous modes cannot do, and what they need."""
    mode, settings = config.trainer.v1.trainer_mode, config.asynchronous
    if mode == "sync":
        return
    ahead, most = config.trainer.v1[mode].num_warmup_batches, settings.max_staleness
    # the batches that are played ahead are launched with the first version, and trained one a step
    require(
        settings.on_stale != "wait" or most is None or most >= math.ceil(ahead),
        f"asynchronous.max_staleness={most}: games of trainer.v1.{mode}.num_warmup_batches={ahead} batches are played "
        f"ahead, and with asynchronous.on_stale=wait each of them is trained; take {math.ceil(ahead)} or more",
    )
    require(
        not config.determinism,
        f"determinism=true: with {_MODE}={mode} it depends on the machine's pace which games are over when a step "
        "samples; take sync",
    )
    if mode == "separate_async":
        _separate(config)


def _separate(config: DictConfig) -> None:
    """What engines on devices of their own cannot do: verl's way of new weights brings the policy's weights alone."""
    devices, mode = config.opponent_engine.devices, f"{_MODE}=separate_async"
    require(
        devices == "own" or not League(config).served,
        f"opponent_engine.devices={devices}: with {mode} the learner's devices are never free for opponents that the "
        "run serves itself (fsp, opponents of kind model); take own, or colocate_async",
    )
    require(
        not has_adapter(config),
        f"{mode}: verl sends whole weights to engines on devices of their own, and would leave the adapter behind; set "
        "actor_rollout_ref.model.lora.merge=true, or take colocate_async",
    )
    lora = int(config.actor_rollout_ref.model.lora_rank or 0) > 0
    require(
        config.ref_update_freq is None or lora,
        f"ref_update_freq={config.ref_update_freq}: with {mode} the reference policy is a worker of its own, which has "
        "not the actor's weights; take colocate_async, or ref_update_freq=null",
    )


PARTS = (_fixed, _choices, _libraries, _correction, _packed_rows, _asynchronous)
