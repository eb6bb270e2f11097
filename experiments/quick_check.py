"""What the quick loop cannot do, which it refuses before anything is played."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.quick_methods import Methods
from experiments.quick_update import rate
from recipe.spiral.lab.evaluation.exploitability.information_sets import ENUMERATED
from recipe.spiral.rollouts.schedule import parse_games

#: Keys of the config, and the only values that the quick loop knows for them.
FIXED: dict[str, Any] = {
    "batch_unit": "games",
    "num_mini_batches": 1,
    "opponents": [],
    "draw_retry.enabled": False,
    "prompt.style": "state",
    "rules.truncated": "illegal",
    "actor_rollout_ref.actor.ppo_epochs": 1,
    "actor_rollout_ref.actor.loss_agg_mode": "seq-mean-token-sum-norm",
    "actor_rollout_ref.actor.optim.optimizer": "AdamW",
    "actor_rollout_ref.actor.optim.optimizer_impl": "torch.optim",
    "actor_rollout_ref.actor.optim.override_optimizer_config": None,
    "actor_rollout_ref.actor.optim.num_cycles": 0.5,
    "actor_rollout_ref.model.lora_rank": 0,
    "actor_rollout_ref.rollout.top_p": 1.0,
    "actor_rollout_ref.rollout.top_k": -1,
    "algorithm.use_kl_in_reward": False,
    "algorithm.filter_zero_advantages": False,
    "algorithm.filter_draws": False,
    "algorithm.rollout_correction.rollout_rs": None,
    "algorithm.rollout_correction.rollout_is_batch_normalize": False,
    "fsp.initial": [],
}


def check(config: DictConfig) -> str:
    """Check the config; returns the game's id.

    Raises:
        ValueError: the quick loop cannot do what the config says; the message names the setting.
    """
    for key, value in FIXED.items():
        if (given := OmegaConf.select(config, key)) != value:
            raise ValueError(f"{key}={given}: the quick loop knows only {value}; use loop=verl")
    estimator, same, states = config.algorithm.adv_estimator, config.data.games_per_start, config.branching.states
    known = {"rae": same == 1 and not states, "grpo_role": same > 1 and not states, "dpo": same > 1 or states}
    if not known.get(estimator):
        raise ValueError(
            f"algorithm.adv_estimator={estimator} with data.games_per_start={same} and branching.states={states}: the "
            "quick loop knows rae with 1 and 0, grpo_role with more and 0, dpo with more of one or both; use loop=verl"
        )
    mode, correction = config.trainer.v1.trainer_mode, config.algorithm.rollout_correction
    if mode != "sync" and (estimator != "rae" or config.fsp.enabled or correction.bypass_mode or ahead(config) % 1):
        raise ValueError(
            f"trainer.v1.trainer_mode={mode}: the quick loop plays whole batches ahead, with rae, without fsp, and "
            "with algorithm.rollout_correction.bypass_mode=false; use loop=verl"
        )
    rate(config.actor_rollout_ref.actor.optim, 1)
    methods, actor = Methods.from_config(config), config.actor_rollout_ref.actor
    if methods.kl_end is not None and not (actor.use_kl_loss and actor.kl_loss_coef > 0 and methods.kl_end > 0):
        raise ValueError(
            f"quick.kl_end={methods.kl_end}: the coefficient falls by the same factor at each step, from kl_loss_coef; "
            "set both above 0, and use_kl_loss=true"
        )
    if methods.regularise == "rewards" and not (actor.use_kl_loss and config.ref_update_freq):
        raise ValueError(
            "quick.regularise=rewards: the rewards have the KL to a reference that moves; set ref_update_freq, and "
            "use_kl_loss=true"
        )
    if methods != Methods() and estimator != "rae":
        raise ValueError(f"algorithm.adv_estimator={estimator}: what +quick names goes with rae only")
    if estimator == "dpo" and actor.entropy_coeff:
        raise ValueError(
            f"actor.entropy_coeff={actor.entropy_coeff}: the quick loop's loss of pairs has no entropy; use loop=verl"
        )
    if (given := actor.policy_loss.loss_mode) != (value := "dpo" if estimator == "dpo" else "vanilla"):
        raise ValueError(
            f"actor.policy_loss.loss_mode={given}: with {estimator} the quick loop knows only {value}; use loop=verl"
        )
    shares = parse_games(config.games)
    if [share.id for share in shares] not in [[game] for game in ENUMERATED] or shares[0].template or shares[0].style:
        raise ValueError(
            f"games={config.games}: the quick loop plays one of {', '.join(ENUMERATED)}, with the template and style "
            "of prompt; use loop=verl"
        )
    return shares[0].id


def ahead(config: DictConfig) -> float:
    """How many batches are played ahead."""
    mode = config.trainer.v1.trainer_mode
    return 0.0 if mode == "sync" else float(config.trainer.v1[mode].num_warmup_batches)
