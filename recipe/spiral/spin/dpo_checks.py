"""Whether the settings go with DPO's loss on pairs (``loss=dpo``)."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from ..checks.combinations import has_critic
from ..checks.errors import require, written
from ..rollouts.schedule import plays_games

#: The loss's name, the estimator's that goes with it, and that of its settings in a batch.
DPO = "dpo"

_ACTOR = "actor_rollout_ref.actor"
#: Tokens of two of verl's rows of padding.
_PADDING = 256
#: (setting, the only value that works with DPO's loss, why).
_WITH_DPO = (
    ("algorithm.use_kl_in_reward", False, f"DPO's loss reads no rewards; set {_ACTOR}.kl_loss_coef instead"),
    ("algorithm.rollout_correction.rollout_is", None, "DPO's loss does not look at the policy that played"),
    ("algorithm.rollout_correction.rollout_rs", None, "it would leave half of a pair"),
    ("trainer.v1.trainer_mode", "sync", "games from one start are compared, and in the other modes steps part them"),
    ("batch_unit", "games", "games from one start are compared, and a batch of turns may end within them"),
)


def check_dpo(config: DictConfig) -> None:
    """Check that the loss, the marks of its rows and the reference come together, as ``loss=dpo`` sets them."""
    loss, estimator = config.actor_rollout_ref.actor.policy_loss.loss_mode, config.algorithm.adv_estimator
    require(
        (loss == DPO) == (estimator == DPO),
        f"algorithm.adv_estimator={estimator} with {_ACTOR}.policy_loss.loss_mode={loss}: dpo is both or none; take "
        "loss=dpo",
    )
    states = config.branching.states
    require(loss == DPO or not states, f"branching.states={states}: only loss=dpo compares branches; take 0")
    if loss != DPO:
        return
    _room(config)
    require(
        config.actor_rollout_ref.actor.use_kl_loss,
        f"{_ACTOR}.use_kl_loss=false: DPO compares with a reference, whose log-probabilities verl computes where the "
        f"loss has a KL term; take true, with {_ACTOR}.kl_loss_coef=0 for none",
    )
    for setting, fixed, why in _WITH_DPO:
        value = OmegaConf.select(config, setting)
        require(value == fixed, f"{setting}={written(value)}: must be {written(fixed)} with loss=dpo; {why}")
    require(not has_critic(config), "critic.enable=true: must be null or false with loss=dpo, which needs no critic")
    smoothing, kind = config.algorithm.dpo_label_smoothing, config.algorithm.dpo_loss_type
    require(
        not smoothing or kind == "sigmoid",
        f"algorithm.dpo_label_smoothing={smoothing}: does nothing with algorithm.dpo_loss_type={kind}; take 0, or "
        "dpo_loss_type=sigmoid",
    )
    if not plays_games(config):
        same = config.actor_rollout_ref.rollout.n
        require(same > 1, f"actor_rollout_ref.rollout.n={same}: loss=dpo compares responses to one question; take 8")
        return
    same = config.data.games_per_start
    require(
        same > 1 or states > 0,
        f"data.games_per_start={same}: loss=dpo compares games from the same start, or branches; take 8, or "
        "branching.states=1",
    )


def _room(config: DictConfig) -> None:
    """Check that the longest pair fits into a micro-batch, which cannot part it: verl would fail in the update."""
    actor, data = config.actor_rollout_ref.actor, config.data
    if not actor.use_dynamic_bsz:
        return
    limit = actor.ppo_max_token_len_per_gpu
    room = limit * actor.ulysses_sequence_parallel_size
    pair = max(2 * (data.max_prompt_length + data.max_response_length), _PADDING)
    require(
        room >= pair,
        f"{_ACTOR}.ppo_max_token_len_per_gpu={limit}: both responses of a pair are in one micro-batch, up to 2 x "
        f"(data.max_prompt_length={data.max_prompt_length} + data.max_response_length={data.max_response_length}) = "
        f"{pair} tokens; raise it, or lower one of those",
    )
