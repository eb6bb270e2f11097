"""Refuses values that verl would accept and that SPIRAL cannot work with, also in the asynchronous modes."""

from __future__ import annotations

import math

from omegaconf import DictConfig, OmegaConf

from ..extensions import objectives
from ..opponents.engine_settings import has_adapter, models_served
from ..processes.attention import PACKED, TORCHS
from .errors import require, written

_MODE = "trainer.v1.trainer_mode"
_CORRECTION = "algorithm.rollout_correction"


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


def check_late(config: DictConfig) -> None:
    """Ask verl, which is imported by now, for what it would refuse, by any error, only in a worker or after games."""
    import torch
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config.optimizer import build_optimizer

    actor = config.actor_rollout_ref.actor
    omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    build_optimizer([torch.nn.Parameter(torch.zeros(1))], omega_conf_to_dataclass(actor.optim))
    own = config.algorithm.adv_estimator in objectives()
    if not own and isinstance(config.actor_rollout_ref.model.external_lib, str):  # others may register losses
        get_policy_loss_fn(actor.policy_loss.loss_mode)


def _packed_rows(config: DictConfig) -> None:
    """Attention of packed rows needs packed rows; of padded ones it would not know the padding."""
    for name in ("actor_rollout_ref.model", *(["critic.model"] if has_critic(config) else [])):
        model = OmegaConf.select(config, name)
        require(
            model.use_remove_padding or model.override_config.get("attn_implementation") != PACKED,
            f"{name}.override_config.attn_implementation={PACKED}: computes packed rows only; take "
            f"{TORCHS} with {name}.use_remove_padding=false",
        )


def _critic(config: DictConfig) -> None:
    """Rows are dealt to the policy's ranks, of which a critic must have as many; without one there is no warm-up."""
    actor, key, critic = config.actor_rollout_ref.actor, "ulysses_sequence_parallel_size", has_critic(config)
    own, ranks = config.critic.fsdp[key], actor[key] if actor[key] > 1 else actor.fsdp_config[key]  # as verl takes it
    require(
        not critic or own == ranks,
        f"critic.fsdp.{key}={own}: a critic needs the policy's, actor_rollout_ref.actor.{key}; take {ranks}",
    )
    steps, why = config.trainer.critic_warmup, "there is no critic, and until then nothing would be trained; take 0"
    require(critic or steps == 0, f"trainer.critic_warmup={steps}: {why}")


def _micro_batches(config: DictConfig) -> None:
    """The actor's worker computes log-probabilities, too, and asserts that it cuts rows alike for both."""
    setting, actors = "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz", "actor_rollout_ref.actor.use_dynamic_bsz"
    one, both = OmegaConf.select(config, setting), OmegaConf.select(config, actors)
    require(one == both, f"{setting}={written(one)}: must be {actors}, {written(both)}; leave it out")


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
    same, games = config.data.games_per_start, math.floor(ahead * config.data.train_batch_size)
    # a launch gives games of one start one opponent, and the rest of them would come with the next launch
    require(
        games % same == 0,
        f"trainer.v1.{mode}.num_warmup_batches={ahead}: of the {games} games that are played ahead the last start has "
        f"fewer than data.games_per_start={same}; take {math.ceil(ahead)}",
    )
    if mode == "separate_async":
        _separate(config)


def _separate(config: DictConfig) -> None:
    """What engines on devices of their own cannot do: verl's way of new weights brings the policy's weights alone."""
    devices, mode = config.opponent_engine.devices, f"{_MODE}=separate_async"
    require(
        devices == "own" or not models_served(config),
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


PARTS = (_correction, _packed_rows, _critic, _micro_batches, _asynchronous)
