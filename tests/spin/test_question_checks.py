"""Games or questions: what goes with which, and what is wrong with a file of questions or a grader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from recipe.spiral.checks import ConfigError, check
from recipe.spiral.checks.settle import settle
from recipe.spiral.spin.question_checks import check_question_prompts
from tests import made_configs
from tests.made_configs import CONFIG, with_vllm_and_gpus


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with_vllm_and_gpus(monkeypatch)
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(5)]
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def config(folder: Path, *overrides: str, loss: str = "dpo") -> DictConfig:
    files = [f"data.train_files={folder}/train.jsonl", f"data.val_files={folder}/test.jsonl"]
    return made_configs.config(folder, *files, *overrides, groups=["task=questions", f"loss={loss}"])


@pytest.mark.parametrize(
    ("overrides", "loss"),
    [
        ([], "dpo"),
        (["actor_rollout_ref.rollout.n=2", "data.train_batch_size=3"], "dpo"),
        ([], "clipped"),
        (["algorithm.adv_estimator=grpo_role"], "clipped"),
        (["questions.grader=verl.utils.reward_score:default_compute_score"], "dpo"),
    ],
    ids=str,
)
def test_what_goes_with_questions(questions: Path, overrides: list[str], loss: str) -> None:
    check(config(questions, *overrides, loss=loss))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["actor_rollout_ref.rollout.n=1"], r"rollout\.n=1: loss=dpo compares responses to one question; take 8"),
        (["data.train_files=nowhere.jsonl"], r"data\.train_files=nowhere\.jsonl: there is no such file of questions"),
        (["fsp.enabled=true"], r"fsp\.enabled=true: must be false with task=questions"),
        (["batch_unit=turns"], r"batch_unit=turns: must be games with loss=dpo"),
        (["draw_retry.enabled=true"], r"draw_retry\.enabled=true: must be false with task=questions"),
        (["questions.grader=mine"], r"questions\.grader=mine: must be boxed, or a function as module:function"),
        (
            ["questions.grader=nobodys:function"],
            r"questions\.grader=nobodys:function: the grader's process did not start: ModuleNotFoundError",
        ),
        (["questions.seconds=0"], r"questions\.seconds=0: must be a number > 0"),
        (["validation.questions=0"], r"validation\.questions=0: must be a whole number >= 1 or null"),
        (["data.val_files=${data.train_files}"], r"data\.val_files=.*: must not be data\.train_files"),
        (
            ["data.train_batch_size=1", "actor_rollout_ref.rollout.n=3", "trainer.n_gpus_per_node=2"],
            r"data\.train_batch_size=1: with 3 sessions each there are 3, which 2 ranks .* take 2",
        ),
    ],
    ids=lambda value: str(value)[:50],
)
def test_what_does_not_is_refused(questions: Path, overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(config(questions, *overrides))


def test_responses_to_one_question_are_compared(questions: Path) -> None:
    refused = config(questions, "algorithm.adv_estimator=grpo_role", "actor_rollout_ref.rollout.n=1", loss="clipped")
    with pytest.raises(ConfigError, match=r"rollout\.n=1: .*grpo_role compares responses to one question; take 8"):
        check(refused)


def test_the_files_must_be_named(questions: Path) -> None:
    with initialize_config_dir(str(CONFIG), version_base=None):
        bare = compose("spiral_trainer", overrides=["hardware=cpu", "task=questions", f"run_dir={questions}/run"])
    settle(bare)
    with pytest.raises(ConfigError, match=r"data\.train_files is not set: name files of questions"):
        check(bare)


@pytest.mark.parametrize("truth", [["7", "8"], [], {"target": ["7"]}], ids=str)
def test_the_box_is_compared_with_one_right_answer(
    questions: Path, truth: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"prompt": [{"role": "user", "content": "?"}], "reward_model": {"ground_truth": truth}}
    (questions / "test.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match=r"boxed: compares with one right answer, and 1 questions of data\.val_files"):
        check(config(questions))
    monkeypatch.chdir(questions)  # where a user's module is looked for
    Path("grader_of_mine.py").write_text("def score(**asked): return 1")
    check(config(questions, "questions.grader=grader_of_mine:score"))


def test_games_have_no_files(questions: Path) -> None:
    with initialize_config_dir(str(CONFIG), version_base=None):
        games = compose("spiral_trainer", overrides=["hardware=cpu", f"data.train_files={questions}/train.jsonl"])
    settle(games)
    with pytest.raises(ConfigError, match=r"data\.train_files=.*: cannot be set; .* or take task=questions"):
        check(games)


class Tokenizer:
    """A token for each character."""

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return [0] * len(text)

    def apply_chat_template(self, conversation: Any, **kwargs: Any) -> list[int]:
        return [0] * sum(len(message["content"]) for message in conversation)


def test_a_prompt_that_is_too_long_is_refused_by_the_questions_name(questions: Path) -> None:
    made = config(questions, "data.max_prompt_length=150")
    check_question_prompts(made, Tokenizer())
    row = {"id": "long one", "question": "What is " + "1 + " * 40 + "1?", "answer": "41"}
    with (questions / "train.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")
    message = r"max_prompt_length=150: 1 questions of data\.train_files have longer .*question long one with \d+ tokens"
    with pytest.raises(ValueError, match=message):
        check_question_prompts(made, Tokenizer())
