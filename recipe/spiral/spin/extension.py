"""What SPIN adds to a training: DPO on pairs (``loss=dpo``), branches of games, and questions in place of games
(``task=questions``); and what would train wrongly, or fail after minutes, with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from .. import extensions
from ..config import require, written
from ..extensions import Objective, ObjectiveKind
from ..rollouts.schedule import plays_games
from .spin_settings import BOXED, DPO, DpoSettings

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
    (f"{_ACTOR}.shuffle", False, "it would part the two responses of a pair"),
    (f"{_ACTOR}.use_kl_loss", True, "verl computes the reference's log-probabilities where the loss has a KL term"),
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


class Extension(extensions.Extension):
    def check(self, config: Any) -> None:
        _check_dpo(config)
        if not plays_games(config):
            _check_questions(config)

    def agent_loops(self, config: Any) -> Mapping[str, str]:
        branching = {"spiral_game": f"{__package__}.branching.BranchingLoop"} if config.branching.states else {}
        return {"spiral_answer": f"{__package__}.graded_answers.AnswerLoop", **branching}

    def objectives(self) -> Mapping[str, ObjectiveKind]:
        return {DPO: ObjectiveKind(_pairs, _pair_loss)}


def _pairs(config: Any) -> Objective:
    from .pairs import PairObjective

    return PairObjective(DpoSettings.from_config(config.algorithm))


def _pair_loss(loss: Callable[..., Any]) -> Callable[..., Any]:
    from .dpo import PairLoss

    return PairLoss(loss)


def _check_dpo(config: DictConfig) -> None:
    """The loss, the marks of its rows and the reference come together, as ``loss=dpo`` sets them."""
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
    _check_room(config)
    for setting, fixed, why in _WITH_DPO:
        value = OmegaConf.select(config, setting)
        require(value == fixed, f"{setting}={written(value)}: must be {written(fixed)} with loss=dpo; {why}")
    setting = "data.games_per_start" if plays_games(config) else "actor_rollout_ref.rollout.n"
    same = OmegaConf.select(config, setting)
    require(
        same > 1 or states > 0,
        f"{setting}={same}: loss=dpo compares responses to one prompt; take 8, or with games branching.states=1",
    )


def _check_room(config: DictConfig) -> None:
    """The longest pair fits into a micro-batch, which cannot part it: verl would fail in the update."""
    actor, data = config.actor_rollout_ref.actor, config.data
    limit = actor.ppo_max_token_len_per_gpu
    pair = max(2 * (data.max_prompt_length + data.max_response_length), _PADDING)
    require(
        not actor.use_dynamic_bsz or limit * actor.ulysses_sequence_parallel_size >= pair,
        f"{_ACTOR}.ppo_max_token_len_per_gpu={limit}: both responses of a pair are in one micro-batch, up to 2 x "
        f"(data.max_prompt_length={data.max_prompt_length} + data.max_response_length={data.max_response_length}) = "
        f"{pair} tokens; raise it, or lower one of those",
    )


def _check_questions(config: DictConfig) -> None:
    """Settings go with questions, and files and the grader are there."""
    from ..lab.graders.grading import check_installed
    from ..lab.graders.judge import Judge, NotStarted
    from ..players.prompts import general_template
    from ..processes.launch import put_on_path
    from .training_questions import load_questions

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
    put_on_path(Path.cwd())  # where a function is looked for, on every machine
    judge = Judge(grader, config.questions.seconds)
    try:
        judge.start()
    except NotStarted as error:
        raise ValueError(f"questions.grader={grader}: must be {BOXED} or module:function; {error}") from error
    finally:
        judge.close()
