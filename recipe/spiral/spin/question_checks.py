"""Whether the settings go with questions from files (``task=questions``)."""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..checks.errors import require, written
from ..lab.graders.grading import check_installed
from ..lab.graders.question import check_lengths
from ..players.prompts import Tokenizer, general_template
from ..spin.response_scores import BOXED, FunctionScorer
from ..spin.training_questions import load_questions

#: What only games have: (setting, the only value that works with questions).
_OF_GAMES: tuple[tuple[str, Any], ...] = (
    ("trainer.v1.trainer_mode", "sync"),
    ("batch_unit", "games"),
    ("branching.states", 0),
    ("fsp.enabled", False),
    ("opponents", []),
    ("draw_retry.enabled", False),
    ("data.games_per_start", 1),
    ("validation.exploitability", []),
    ("validation.optimality", []),
)


def check_questions(config: DictConfig) -> None:
    """Refuse settings that do not go with questions, and files or a grader that are not there."""
    for setting, only in _OF_GAMES:
        value = OmegaConf.select(config, setting)
        require(value == only, f"{setting}={written(value)}: must be {written(only)} with task=questions")
    general_template(config.prompt.template)
    for setting in ("data.train_files", "data.val_files"):
        files = OmegaConf.select(config, setting)
        require(bool(files), f"{setting} is not set: name files of questions, or take task=games")
        several = [question.id for question in load_questions(files, setting) if not question.one_answer]
        require(
            not several or config.questions.grader != BOXED,
            f"questions.grader={BOXED}: compares with one right answer, and {len(several)} questions of {setting} have "
            "several in reward_model.ground_truth, or a mapping as the answer, the first: question "
            f"{''.join(several[:1])}; name a function of yours that knows what they mean, module:function",
        )
    require(
        config.data.train_files != config.data.val_files,
        f"data.val_files={config.data.val_files}: must not be data.train_files, as verl tells the two apart by their "
        "files; a copy will do",
    )
    grader = config.questions.grader
    if grader == BOXED:
        check_installed(f"questions.grader={BOXED}", "; or name a function of yours, module:function")
        return
    require(
        ":" in grader,
        f"questions.grader={grader}: must be {BOXED}, or a function as module:function",
    )
    scorer = FunctionScorer(grader, config.questions.seconds)
    try:
        scorer.check()
    except RuntimeError as error:
        raise ValueError(f"questions.grader={grader}: {error}") from error
    finally:
        scorer.close()


def check_question_prompts(config: DictConfig, tokenizer: Tokenizer) -> None:
    """Check the prompts of all questions. Raises: as ``check_lengths``."""
    template = general_template(config.prompt.template)
    kwargs: Any = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    for setting in ("data.train_files", "data.val_files"):
        questions = load_questions(OmegaConf.select(config, setting), setting)
        prompts = ((question.id, question.encode(tokenizer, template, **kwargs)) for question in questions)
        check_lengths(config, setting, f"prompt.template={config.prompt.template}", prompts)
