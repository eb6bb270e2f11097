"""What would train wrongly, or fail after minutes, with DPO's loss (``loss=dpo``) or questions (``task=questions``)."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..config import require, written
from ..lab.graders.grading import check_installed
from ..players.prompts import general_template
from ..rollouts.schedule import plays_games
from .dpo_settings import DPO, DpoSettings
from .response_scores import BOXED, FunctionScorer
from .training_questions import load_questions

_ACTOR = "actor_rollout_ref.actor"
#: Tokens of two of verl's rows of padding.
_PADDING = 256
#: With DPO's loss: (setting, the only value that works, why).
_WITH_DPO = (
    ("algorithm.use_kl_in_reward", False, f"DPO's loss reads no rewards; set {_ACTOR}.kl_loss_coef instead"),
    ("algorithm.rollout_correction.rollout_is", None, "DPO's loss does not look at the policy that played"),
    ("algorithm.rollout_correction.rollout_rs", None, "it would leave half of a pair"),
    ("trainer.v1.trainer_mode", "sync", "games from one start are compared, and in the other modes steps part them"),
    ("batch_unit", "games", "games from one start are compared, and a batch of turns may end within them"),
)
#: What only games have: (setting, the only value that works with questions).
_OF_GAMES: tuple[tuple[str, Any], ...] = (
    ("trainer.v1.trainer_mode", "sync"),
    ("batch_unit", "games"),
    ("branching.states", 0),
    ("fsp.enabled", False),
    ("opponents", []),
    ("draw_retry.enabled", False),
    ("data.games_per_start", 1),
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
    DpoSettings.from_config(config.algorithm)
    _room(config)
    require(
        config.actor_rollout_ref.actor.use_kl_loss,
        f"{_ACTOR}.use_kl_loss=false: DPO compares with a reference, whose log-probabilities verl computes where the "
        f"loss has a KL term; take true, with {_ACTOR}.kl_loss_coef=0 for none",
    )
    for setting, fixed, why in _WITH_DPO:
        value = OmegaConf.select(config, setting)
        require(value == fixed, f"{setting}={written(value)}: must be {written(fixed)} with loss=dpo; {why}")
    setting = "data.games_per_start" if plays_games(config) else "actor_rollout_ref.rollout.n"
    same = OmegaConf.select(config, setting)
    require(
        same > 1 or states > 0,
        f"{setting}={same}: loss=dpo compares responses to one prompt; take 8, or with games branching.states=1",
    )


def _room(config: DictConfig) -> None:
    """Check that the longest pair fits into a micro-batch, which cannot part it: verl would fail in the update."""
    actor, data = config.actor_rollout_ref.actor, config.data
    if not actor.use_dynamic_bsz:
        return
    limit = actor.ppo_max_token_len_per_gpu
    pair = max(2 * (data.max_prompt_length + data.max_response_length), _PADDING)
    require(
        limit * actor.ulysses_sequence_parallel_size >= pair,
        f"{_ACTOR}.ppo_max_token_len_per_gpu={limit}: both responses of a pair are in one micro-batch, up to 2 x "
        f"(data.max_prompt_length={data.max_prompt_length} + data.max_response_length={data.max_response_length}) = "
        f"{pair} tokens; raise it, or lower one of those",
    )


def check_questions(config: DictConfig) -> None:
    """Refuse settings that do not go with questions, and files or a grader that are not there."""
    for setting, only in _OF_GAMES:
        value = OmegaConf.select(config, setting)
        require(value == only, f"{setting}={written(value)}: must be {written(only)} with task=questions")
    general_template(config.prompt.template)
    grader = config.questions.grader
    for setting in ("data.train_files", "data.val_files"):
        files = OmegaConf.select(config, setting)
        require(bool(files), f"{setting} is not set: name files of questions, or take task=games")
        several = [question.id for question in load_questions(files, setting) if not question.one_answer]
        require(
            not several or grader != BOXED,
            f"questions.grader={BOXED}: compares with one right answer, and {len(several)} questions of {setting} have "
            f"several, the first: question {''.join(several[:1])}; name a function of yours, module:function",
        )
    require(
        config.data.train_files != config.data.val_files,
        f"data.val_files={config.data.val_files}: must not be data.train_files, as verl tells the two apart by their "
        "files; a copy will do",
    )
    if grader == BOXED:
        check_installed(f"questions.grader={BOXED}", "; or name a function of yours, module:function")
        return
    require(":" in grader, f"questions.grader={grader}: must be {BOXED}, or a function as module:function")
    scorer = FunctionScorer(grader, config.questions.seconds)
    try:
        scorer.check()
    except RuntimeError as error:
        raise ValueError(f"questions.grader={grader}: {error}") from error
    finally:
        scorer.close()
