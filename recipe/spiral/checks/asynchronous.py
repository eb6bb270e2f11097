"""What the asynchronous modes cannot do, and what they need."""

from __future__ import annotations

import math

from omegaconf import DictConfig

from ..opponents.engine import has_adapter
from ..opponents.league import League
from .errors import require

MODE = "trainer.v1.trainer_mode"


def _staleness(config: DictConfig) -> None:
    """With "wait", the batches that are played ahead are launched with the first version, and trained one a step."""
    mode, settings = config.trainer.v1.trainer_mode, config.asynchronous
    if mode == "sync":
        return
    ahead, most = config.trainer.v1[mode].num_warmup_batches, settings.max_staleness
    require(
        settings.on_stale != "wait" or most is None or most >= math.ceil(ahead),
        f"asynchronous.max_staleness={most}: games of trainer.v1.{mode}.num_warmup_batches={ahead} batches are played "
        f"ahead, and with asynchronous.on_stale=wait each of them is trained; take {math.ceil(ahead)} or more",
    )


def _determinism(config: DictConfig) -> None:
    mode = config.trainer.v1.trainer_mode
    require(
        mode == "sync" or not config.determinism,
        f"determinism=true: with {MODE}={mode} it depends on the machine's pace which games are over when a step "
        "samples; take sync",
    )


def _opponents(config: DictConfig) -> None:
    mode, devices = config.trainer.v1.trainer_mode, config.opponent_engine.devices
    if mode != "separate_async" or not League(config).served:
        return
    require(
        devices == "own",
        f"opponent_engine.devices={devices}: with {MODE}={mode} the learner's devices are never free for opponents "
        "that the run serves itself (fsp, opponents of kind model); take own, or colocate_async",
    )


def _separate(config: DictConfig) -> None:
    """What verl's way of new weights to engines on devices of their own does not bring there."""
    mode = config.trainer.v1.trainer_mode
    if mode != "separate_async":
        return
    require(
        not has_adapter(config),
        f"{MODE}={mode}: verl sends whole weights to engines on devices of their own, and would leave the adapter "
        "behind; set actor_rollout_ref.model.lora.merge=true, or take colocate_async",
    )
    lora = int(config.actor_rollout_ref.model.lora_rank or 0) > 0
    require(
        config.ref_update_freq is None or lora,
        f"ref_update_freq={config.ref_update_freq}: with {MODE}={mode} the reference policy is a worker of its own, "
        "which has not the actor's weights; take colocate_async, or ref_update_freq=null",
    )


PARTS = (_staleness, _determinism, _opponents, _separate)
