"""Settings that do not go together: what would train wrongly without a word, or end a run after minutes.

Each function yields what is wrong, as one line that names the setting, the reason and the mend.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..config import require, written
from ..extensions import objectives
from ..match import Rules
from ..opponents.engine_settings import has_adapter, models_served
from ..opponents.fixed_opponents import MODEL, entry_of, kinds, make_player, parse_opponents
from ..opponents.model_files import CONFIGS, check_whole, form_of, is_hub_id, local
from ..opponents.pool import snapshot_step
from ..players.player import check_random_play
from ..players.seats import BASE
from ..processes.cluster import cluster_address
from ..processes.composing import FLASH, PACKED, RECIPE
from ..rollouts.schedule import matches, parse_games, plays_games, validated_games
from ..storage.run_files import flat

ESTIMATORS = ("rae", "grpo_role", "gae", "reinforce_plus_plus")
#: verl's settings with which turns would be trained that were not played, or not be trained that were, and why.
_OTHERS = {
    "algorithm.use_pf_ppo": "it draws turns with replacement, so that they are no longer those that were played",
    "algorithm.filter_groups.enable": "it drops games of which no record is kept; take algorithm.filter_draws",
    "trainer.v1.sampler.sync_refill_failed_groups": "which games are played would depend on the machine's pace",
}


def model(config: DictConfig) -> Iterator[str]:
    """A path that leads to no model, in which transformers would see a hub's id or an unknown form."""
    setting, path = "actor_rollout_ref.model.path", config.actor_rollout_ref.model.path
    if path is None:
        yield f"{setting} is not set: give a model's folder or hub id, or take model=tiny, which comes with the recipe"
    elif not is_hub_id(path) and not os.path.isfile(os.path.join(path, "config.json")):
        yield f"{setting}={path}: no model is there"


def wiring(config: DictConfig) -> Iterator[str]:
    """What is no choice: with other values something would be trained or recorded otherwise, without a word."""
    wired = OmegaConf.load(RECIPE / "config" / "wiring.yaml")
    whole = OmegaConf.merge(OmegaConf.create(OmegaConf.to_container(config)), wired)  # it refers to other settings
    for name in flat(OmegaConf.to_container(wired)):
        given, needed = OmegaConf.select(config, name), OmegaConf.select(whole, name)
        if given != needed:
            yield f"{name}={written(given)}: must be {written(needed)}, as config/wiring.yaml says; leave it out"


def games(config: DictConfig) -> Iterator[str]:
    """Games that would be cut, shown as others', or not be those of the seed."""
    if config.trainer.total_training_steps is None:
        yield "trainer.total_training_steps=null: games have no end of their own; give a number"
    cap = Rules.from_config(config.rules).turn_cap
    for share in (*parse_games(config.games), *validated_games(config)):
        opening = f"games: {share.id}: random_opening={share.random_opening}"
        if share.random_opening:
            check_random_play(share.id)
        if share.random_opening and (share.style or config.prompt.style) == "dialogue":
            yield f"{opening}: prompt.style=dialogue would show random moves as the player's own answers"
        if cap is not None and share.random_opening >= cap:
            yield f"{opening}: games would end at rules.turn_cap={cap} before anybody is asked"
    if not plays_games(config):
        return
    if (responses := config.actor_rollout_ref.rollout.n) != 2:
        yield f"actor_rollout_ref.rollout.n={responses}: must be 2 where games are played, one for each player"
    for split in ("train", "val"):
        if (files := config.data[f"{split}_files"]) != split:
            yield f"data.{split}_files={files}: games are made from the seed, as games names them; leave it out"


def advantages(config: DictConfig) -> Iterator[str]:
    """What turns are compared with."""
    name, starts = config.algorithm.adv_estimator, config.data.games_per_start
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
    if config.batch_unit == "turns" and starts > 1:
        yield f"data.games_per_start={starts}: a batch of turns may end within the games of one start"
    correction = config.algorithm.rollout_correction
    for setting in ("rollout_is", "rollout_rs"):
        if correction.bypass_mode and correction[setting] is not None:
            yield (
                f"algorithm.rollout_correction.{setting}={correction[setting]}: does nothing with bypass_mode=true, "
                "which has no log-probabilities of the trainer's own"
            )
    if name != "gae" and (steps := config.trainer.critic_warmup):
        yield f"trainer.critic_warmup={steps}: there is no critic, and until then nothing would be trained; take 0"
    if config.algorithm.use_kl_in_reward and (kind := config.algorithm.kl_ctrl.type) != "fixed":
        yield f"algorithm.kl_ctrl.type={kind}: a resumed run would begin with kl_coef again; take fixed"
    for setting, why in _OTHERS.items():
        if value := OmegaConf.select(config, setting):
            yield f"{setting}={written(value)}: {why}"


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
    if config.trainer.v1.trainer_mode == "separate_async" and not lora:
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


PARTS = (model, wiring, games, advantages, reference, lengths, attention, asynchronous)


# -- opponents: a failure would come when their first game does --------------------------------------------------------


def check_opponents(config: DictConfig) -> None:
    """Check ``opponents``, their shares with the pool's, and those of validation. Raises ValueError, or ImportError
    where one needs a package that is not installed."""
    fsp, opponents = config.fsp, parse_opponents(config.opponents)
    for opponent in opponents:
        with entry_of("opponents", opponent.name):
            if snapshot_step(opponent.name) is not None or (opponent.name == BASE and BASE in list(fsp.initial)):
                raise ValueError(f"name={opponent.name}: is that of a member of the pool; give another name")
            if opponent.kind == MODEL:
                _check_model(opponent.settings.get("path"), has_adapter(config))
                continue
            make_player(opponent.kind, opponent.settings)
            for game in (share.id for share in parse_games(config.games) if opponent.plays(share.id)):
                kinds()[opponent.kind].check_game(game)
    shares = sum(opponent.share for opponent in opponents)
    if fsp.enabled and fsp.ratio + shares > 1 + 1e-9:
        raise ValueError(f"fsp.ratio={fsp.ratio}: must be at most 1 together with the opponents' shares ({shares:g})")
    validates = config.trainer.test_freq > 0 or config.trainer.val_before_train
    matches(config.validation.opponents, config.opponents, validated_games(config), required=validates)


def check_initial(config: DictConfig) -> None:
    """Check the members that a pool begins with, where a run has no checkpoint of its pool yet."""
    given = [path for path in config.fsp.initial if path != BASE]
    for path in given:
        with entry_of("fsp.initial", path):
            _check_model(path, has_adapter(config))
    members, size = len(config.fsp.initial), config.fsp.size
    if not config.fsp.enabled:
        return
    require(
        members < size, f"fsp.size={size}: fsp.initial has {members} members, which never leave; take a larger pool"
    )
    ever = members > 0 or config.fsp.update_interval is not None
    require(ever, "fsp.update_interval=null: without fsp.initial the pool would stay empty, and all games self-play")


def _check_model(path: Any, lora: bool) -> None:
    """An engine loads models, and the policy's engine with LoRA only adapters."""
    if isinstance(path, str) and is_hub_id(path):
        local(path, CONFIGS)
        return
    kind, form = ("an adapter", "adapter") if lora else ("a whole model", "hf")
    if not isinstance(path, str) or form_of(Path(path).expanduser()) != form:
        raise ValueError(f"path={path}: must be the folder of {kind}, as the policy is; export a checkpoint")
    check_whole(Path(path).expanduser(), "path")


# -- what verl refuses -------------------------------------------------------------------------------------------------


def check_by_verl(config: DictConfig) -> None:
    """Ask verl, which is imported by now, as its own program does, and as its workers would after a minute. Raises
    ValueError."""
    import torch
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config
    from verl.workers.config.optimizer import build_optimizer

    parts: Any = config.actor_rollout_ref
    try:
        with redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            validate_config(config, use_reference_policy=need_reference_policy(config), use_critic=need_critic(config))
            omega_conf_to_dataclass(parts.rollout)
            optimizer = omega_conf_to_dataclass(parts.actor).optim
            build_optimizer([torch.nn.Parameter(torch.zeros(1))], optimizer)
    except Exception as error:  # an assertion, a class that is not there, an argument that it does not take
        raise ValueError(f"verl refuses the config: {error!r}") from error


def check_gpus(config: DictConfig) -> None:
    """That this machine has the GPUs of a run that joins no cluster; a dry run needs none. Raises ValueError."""
    import torch

    wanted, there = config.trainer.n_gpus_per_node, torch.cuda.device_count()
    require(
        config.trainer.device != "cuda" or there >= wanted or cluster_address(config) is not None,
        f"trainer.n_gpus_per_node={wanted}: PyTorch sees {there} GPUs on this machine; take fewer, or hardware=cpu",
    )
