"""Whether SPIRAL's own settings go together."""

from __future__ import annotations

import math
from itertools import count

from omegaconf import DictConfig, OmegaConf

from ..extensions import objectives
from ..match import Rules
from ..players import random_player
from ..players.prompts import check_style, get_template
from ..rollouts.schedule import parse_games, plays_games, validated_games
from ..workers.engine_size import engine_devices
from .errors import ConfigError, require, written
from .verls import has_critic

ESTIMATORS = ("rae", "grpo_role", "gae", "reinforce_plus_plus")


def has_model(config: DictConfig) -> None:
    """Refuse a config that names no model."""
    require(
        OmegaConf.select(config, "actor_rollout_ref.model.path") is not None or config.embedded_model is not None,
        "actor_rollout_ref.model.path is not set: give a model's folder or hub id, or take model=tiny, which comes "
        "with the recipe",
    )


def _parsed(config: DictConfig) -> None:
    """Check what is parsed where it is used."""
    shares = parse_games(config.games)
    validated_games(config)
    cap = Rules.from_config(config.rules).turn_cap
    for share in shares:
        require(
            cap is None or share.random_opening < cap,
            f"games: {share.id} has random_opening={share.random_opening}: must be below rules.turn_cap={cap}, which "
            "counts its moves, or games end before anybody is asked; lower one or raise the other",
        )
        require(
            not share.random_opening or (share.style or config.prompt.style) == "state",
            f"games: {share.id} has random_opening={share.random_opening}: prompt.style=dialogue would show random "
            "moves as answers of the player's own; take prompt.style=state, or leave it out",
        )
        if share.random_opening:
            try:
                random_player.check_game(share.id)
            except ValueError as error:
                raise ConfigError(f"games: random_opening={share.random_opening}: {error}; leave it out") from error
    get_template(config.prompt.template)
    check_style(config.prompt.style)


def _sessions(config: DictConfig) -> None:
    """Check that rows are games, if they are: in pairs of sessions, and made from the seed."""
    if not plays_games(config):
        return
    responses = config.actor_rollout_ref.rollout.n
    require(responses == 2, f"actor_rollout_ref.rollout.n={responses}: must be 2; one session for each player")
    for split, instead in (("train", "games"), ("val", "validation.games")):
        files = config.data[f"{split}_files"]
        require(
            files == split,
            f"data.{split}_files={files}: cannot be set; rows are games, made from the seed; set {instead} instead, or "
            "take task=questions",
        )


def _algorithm(config: DictConfig) -> None:
    name = config.algorithm.adv_estimator
    require(
        name != "grpo",
        "algorithm.adv_estimator=grpo: compares the two players of one game, whose outcomes R and -R have the mean 0; "
        "take grpo_role, with data.games_per_start",
    )
    require(
        name in ESTIMATORS or name in objectives(),
        f"algorithm.adv_estimator={name!r}: unknown here; known: {', '.join(ESTIMATORS)}",
    )
    require(name != "gae" or config.critic.enable is not False, "critic.enable=false: gae needs a critic; take null")
    size, same = config.data.train_batch_size, config.data.games_per_start
    require(
        config.batch_unit != "turns" or same == 1,
        f"data.games_per_start={same}: batch_unit=turns ends a batch after any game, also within those of one start; "
        "take batch_unit=games",
    )
    require(
        size % same == 0,
        f"data.games_per_start={same}: must be a whole number that divides data.train_batch_size={size}",
    )
    setting, compared = "data.games_per_start", "games from the same start"
    if not plays_games(config):
        setting, compared = "actor_rollout_ref.rollout.n", "responses to one question"
    same = OmegaConf.select(config, setting)
    require(
        name != "grpo_role" or same > 1,
        f"{setting}={same}: algorithm.adv_estimator=grpo_role compares {compared}; take 8",
    )


def _reference(config: DictConfig) -> None:
    every, actor, ref = config.ref_update_freq, config.actor_rollout_ref.actor, config.actor_rollout_ref.ref
    rate = config.ref_update_rate
    require(
        every is not None or rate == 1,
        f"ref_update_rate={rate}: with ref_update_freq=null the reference policy never moves; set "
        "ref_update_freq=1, or ref_update_rate=1",
    )
    if every is None:
        return
    require(
        actor.use_kl_loss or config.algorithm.use_kl_in_reward,
        f"ref_update_freq={every}: without KL there is no reference policy; set "
        "actor_rollout_ref.actor.use_kl_loss=true or algorithm.use_kl_in_reward=true, or ref_update_freq=null",
    )
    for name, part in (("actor", actor), ("ref", ref)):
        require(
            part.strategy == "fsdp2",
            f"actor_rollout_ref.{name}.strategy={part.strategy}: ref_update_freq={every} copies the shards of fsdp2; "
            "take fsdp2, or ref_update_freq=null",
        )
    require(
        actor.fsdp_config.fsdp_size == ref.fsdp_config.fsdp_size,
        f"actor_rollout_ref.ref.fsdp_config.fsdp_size={ref.fsdp_config.fsdp_size}: must be the actor's, "
        f"{actor.fsdp_config.fsdp_size}, with ref_update_freq={every}",
    )
    lora, dtype = int(config.actor_rollout_ref.model.lora_rank or 0) > 0, ref.fsdp_config.model_dtype
    require(
        rate == 1 or lora or str(dtype) in ("fp32", "float32", "32"),
        f"actor_rollout_ref.ref.fsdp_config.model_dtype={written(dtype)}: with ref_update_rate={rate} the reference "
        "policy would stand still, because its steps are rounded away; take fp32",
    )


def _batch(config: DictConfig) -> None:
    size, ranks = config.data.train_batch_size, config.trainer.n_gpus_per_node * config.trainer.nnodes
    each = config.actor_rollout_ref.rollout.n
    fitting = next(more for more in count(size) if each * more % ranks == 0)
    require(
        size == fitting,
        f"data.train_batch_size={size}: with {each} sessions each there are {each * size}, which {ranks} ranks "
        f"(trainer.n_gpus_per_node x trainer.nnodes) do not divide; take {fitting}",
    )
    mini_batches = config.num_mini_batches
    require(mini_batches <= size, f"num_mini_batches={mini_batches}: must be from 1 to data.train_batch_size={size}")


def _engine(config: DictConfig) -> None:
    """Check that engines of several devices divide them, which verl's workers find out when all models are loaded."""
    rollout = config.actor_rollout_ref.rollout
    devices, each = engine_devices(config)
    require(
        devices % each == 0,
        f"actor_rollout_ref.rollout.tensor_model_parallel_size={rollout.tensor_model_parallel_size}: an engine takes "
        f"{each} of the {devices} devices, which it does not divide; take {math.gcd(devices, each)}, or another number "
        "of devices",
    )


def _lengths(config: DictConfig) -> None:
    prompt, response = config.data.max_prompt_length, config.data.max_response_length
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    window = rollout.max_model_len
    for name in ("actor_rollout_ref.actor", "actor_rollout_ref.rollout", "actor_rollout_ref.ref", "critic"):
        part = OmegaConf.select(config, name)
        packed = actor.use_dynamic_bsz or (name == "critic" and has_critic(config))  # a critic's always are
        for key in (key for key in part if key.endswith("max_token_len_per_gpu") and packed):
            require(
                prompt + response <= part[key] * actor.ulysses_sequence_parallel_size,
                f"{name}.{key}={part[key]}: a turn may have data.max_prompt_length={prompt} + "
                f"data.max_response_length={response} tokens, and goes through the model whole; raise it, or lower one",
            )
    require(
        prompt + response <= window,
        f"data.max_prompt_length={prompt} + data.max_response_length={response} is more than "
        f"actor_rollout_ref.rollout.max_model_len={window}: lower one of them or raise that",
    )
    require(
        rollout.enable_chunked_prefill or window <= rollout.max_num_batched_tokens,
        f"actor_rollout_ref.rollout.max_num_batched_tokens={rollout.max_num_batched_tokens}: must be at least "
        f"actor_rollout_ref.rollout.max_model_len={window} where prompts are not taken in parts "
        "(enable_chunked_prefill=false)",
    )


PARTS = (_parsed, _sessions, _batch, _engine, _algorithm, _reference, _lengths)
