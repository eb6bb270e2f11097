"""Settings that do not go together: what would train wrongly without a word, or end a run after minutes.

Each function yields what is wrong, as one line that names the setting, the reason and the mend.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..extensions import objectives
from ..match import Rules
from ..opponents.engine_settings import has_adapter, models_served
from ..players.player import check_random_play
from ..players.prompts import get_template
from ..processes.attention import FLASH, PACKED
from ..rollouts.schedule import parse_games, plays_games, validated_games

ESTIMATORS = ("rae", "grpo_role", "gae", "reinforce_plus_plus")
#: verl's settings with which turns would be trained that were not played, or not be trained that were, and why.
_OTHERS = {
    "algorithm.use_pf_ppo": "it draws turns with replacement, so that they are no longer those that were played",
    "algorithm.filter_groups.enable": "it drops games of which no record is kept; take algorithm.filter_draws",
    "trainer.v1.sampler.sync_refill_failed_groups": "which games are played would depend on the machine's pace",
}


def games(config: DictConfig) -> Iterator[str]:
    """Raises ValueError for what is no game, template or rule."""
    cap = Rules.from_config(config.rules).turn_cap
    get_template(config.prompt.template)
    for share in (*parse_games(config.games), *validated_games(config)):
        if share.random_opening:
            check_random_play(share.id)
        if share.random_opening and (share.style or config.prompt.style) == "dialogue":
            yield (
                f"games: {share.id}: random_opening={share.random_opening}: prompt.style=dialogue would show random "
                "moves as the player's own answers"
            )
        if cap is not None and share.random_opening >= cap:
            yield (
                f"games: {share.id}: random_opening={share.random_opening}: games would end at rules.turn_cap={cap} "
                "before anybody is asked"
            )
    responses = config.actor_rollout_ref.rollout.n
    if plays_games(config) and responses != 2:
        yield f"actor_rollout_ref.rollout.n={responses}: must be 2 where games are played, one for each player"
    for split in ("train", "val") if plays_games(config) else ():
        if (files := config.data[f"{split}_files"]) != split:
            yield f"data.{split}_files={files}: games are made from the seed, as games names them; leave it out"


def advantages(config: DictConfig) -> Iterator[str]:
    """What turns are compared with."""
    name, data = config.algorithm.adv_estimator, config.data
    if name == "grpo":
        yield (
            "algorithm.adv_estimator=grpo: compares the two players of one game, whose outcomes R and -R have the mean "
            "0; take grpo_role, with data.games_per_start"
        )
    elif name not in (*ESTIMATORS, *objectives()):
        yield f"algorithm.adv_estimator={name}: knows nothing of games; known: {', '.join(ESTIMATORS)}"
    setting = "data.games_per_start" if plays_games(config) else "actor_rollout_ref.rollout.n"
    if name == "grpo_role" and (same := OmegaConf.select(config, setting)) == 1:
        yield f"{setting}={same}: algorithm.adv_estimator=grpo_role compares games from the same start; take 8"
    if config.batch_unit == "turns" and data.games_per_start > 1:
        yield f"data.games_per_start={data.games_per_start}: a batch of turns may end within the games of one start"
    correction = config.algorithm.rollout_correction
    for setting in ("rollout_is", "rollout_rs"):
        if correction.bypass_mode and correction[setting] is not None:
            yield (
                f"algorithm.rollout_correction.{setting}={correction[setting]}: does nothing with bypass_mode=true, "
                "which has no log-probabilities of the trainer's own"
            )
    for setting, why in _OTHERS.items():
        if OmegaConf.select(config, setting):
            yield f"{setting}=true: {why}"


def reference(config: DictConfig) -> Iterator[str]:
    """The reference policy that moves."""
    every, rate, parts = config.ref_update_freq, config.ref_update_rate, config.actor_rollout_ref
    actor, ref = parts.actor, parts.ref
    if every is None:
        if rate != 1:
            yield f"ref_update_rate={rate}: with ref_update_freq=null the reference policy never moves"
        return
    if not (actor.use_kl_loss or config.algorithm.use_kl_in_reward):
        yield (
            f"ref_update_freq={every}: without KL there is no reference policy; take "
            "actor_rollout_ref.actor.use_kl_loss=true"
        )
    if {actor.strategy, ref.strategy} != {"fsdp2"} or actor.fsdp_config.fsdp_size != ref.fsdp_config.fsdp_size:
        yield f"ref_update_freq={every}: copies shards of fsdp2, of which actor and reference must have as many"
    lora, dtype = int(parts.model.lora_rank or 0) > 0, str(ref.fsdp_config.model_dtype)
    if rate != 1 and not lora and dtype not in ("fp32", "float32", "32"):
        yield (
            f"actor_rollout_ref.ref.fsdp_config.model_dtype={dtype}: with ref_update_rate={rate} the reference policy "
            "would stand still, because its steps are rounded away; take fp32"
        )
    if every is not None and config.trainer.v1.trainer_mode == "separate_async" and not lora:
        yield (
            f"ref_update_freq={every}: with trainer.v1.trainer_mode=separate_async the reference policy is a worker of "
            "its own, which has not the actor's weights; take colocate_async"
        )


def lengths(config: DictConfig) -> Iterator[str]:
    """A turn goes through the model and the engine whole, or it would be cut without a word."""
    longest = config.data.max_prompt_length + config.data.max_response_length
    actor, window = config.actor_rollout_ref.actor, config.actor_rollout_ref.rollout.max_model_len
    room = actor.ppo_max_token_len_per_gpu * actor.ulysses_sequence_parallel_size
    for setting, limit in (
        ("rollout.max_model_len", window),
        ("actor.ppo_max_token_len_per_gpu", room if actor.use_dynamic_bsz else math.inf),
    ):
        if longest > limit:
            yield (
                f"actor_rollout_ref.{setting}={limit}: a turn may have data.max_prompt_length + "
                f"data.max_response_length={longest} tokens; raise it, or lower one of them"
            )


def attention(config: DictConfig) -> Iterator[str]:
    """Attention that would look at padding, or at a part of a turn."""
    parts = config.actor_rollout_ref
    asked, key = parts.model.override_config.get("attn_implementation", FLASH), "ulysses_sequence_parallel_size"
    if asked == PACKED and not parts.model.use_remove_padding:
        yield (
            f"actor_rollout_ref.model.override_config.attn_implementation={PACKED}: computes packed rows, and would "
            "look at padding; take sdpa with use_remove_padding=false"
        )
    if asked != FLASH and max(parts.actor[key], parts.actor.fsdp_config[key]) > 1:
        yield f"actor_rollout_ref.actor.{key}: with {asked} tokens on different GPUs would not see each other; take 1"


def asynchronous(config: DictConfig) -> Iterator[str]:
    """What the asynchronous modes need."""
    mode, settings = config.trainer.v1.trainer_mode, config.asynchronous
    if mode == "sync":
        return
    ahead, most = math.ceil(config.trainer.v1[mode].num_warmup_batches), settings.max_staleness
    if settings.on_stale == "wait" and most is not None and most < ahead:
        yield (
            f"asynchronous.max_staleness={most}: games of trainer.v1.{mode}.num_warmup_batches={ahead} batches are "
            f"played ahead, and with on_stale=wait each is trained; take {ahead} or more"
        )
    if mode == "separate_async" and has_adapter(config):
        yield (
            f"trainer.v1.trainer_mode={mode}: verl sends whole weights, and would leave the adapter behind; take "
            "actor_rollout_ref.model.lora.merge=true, or colocate_async"
        )
    if mode == "separate_async" and config.opponent_engine.devices != "own" and models_served(config):
        yield (
            f"opponent_engine.devices={config.opponent_engine.devices}: with {mode} the learner's devices are never "
            "free for opponents that the run serves; take own, or colocate_async"
        )


def pattern(config: DictConfig) -> Iterator[str]:
    """vLLM finds no past selves there, and says so when the first is to play."""
    if config.fsp.enabled and "[" in config.run_dir:
        yield f"run_dir={config.run_dir}: vLLM takes [ in a path for a pattern; take another folder"


def check_late(config: DictConfig) -> None:
    """Ask verl, which is imported by now, for what it would refuse, by any error, only in a worker or after games."""
    import torch
    from verl.utils.config import omega_conf_to_dataclass
    from verl.workers.config.optimizer import build_optimizer

    parts: Any = config.actor_rollout_ref
    omega_conf_to_dataclass(parts.rollout)
    omega_conf_to_dataclass(parts.actor)
    build_optimizer([torch.nn.Parameter(torch.zeros(1))], omega_conf_to_dataclass(parts.actor.optim))


PARTS = (games, advantages, reference, lengths, attention, asynchronous, pattern)
