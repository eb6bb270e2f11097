"""Questions to train on: the forms of their files, their order, and their rows; what they and ``loss=dpo`` need."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf

from recipe.spiral.checks import check as check_core
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.spin.extension import Extension
from recipe.spiral.spin.question_dataset import QuestionDataset, order
from recipe.spiral.spin.training_questions import TrainingQuestion, load_questions, read_question
from tests import made_configs

#: As GSM8K's own files and verl's have it.
PLAIN = {"question": "How many?", "answer": "She has 3 * 400 = <<3*400=1200>>1200.\n#### 1,200"}
MESSAGES = [
    {"role": "user", "content": 'How many? Let\'s think step by step and output the final answer after "####".'}
]
VERLS = {
    "data_source": "openai/gsm8k",
    "prompt": MESSAGES,
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "1200"},
    "extra_info": {"split": "train", "index": 7, "answer": PLAIN["answer"], "question": "How many?"},
}
TRIVIA = {"value": "Paris", "aliases": "City of Light"}


def test_verls_form() -> None:
    asked = read_question(VERLS, "train", 4)
    assert (asked.data_set, asked.id, asked.answer, asked.data_source) == ("gsm8k", "7", "1200", "openai/gsm8k")
    assert asked.prompt == MESSAGES and asked.extra_info["question"] == "How many?"
    assert asked.text == MESSAGES[0]["content"]
    assert TrainingQuestion.from_json(asked.to_json()) == asked


@pytest.mark.parametrize(
    ("row", "answer", "truth"),
    [
        ({**VERLS, "reward_model": {"ground_truth": 0}}, "0", 0),
        ({**VERLS, "reward_model": {"ground_truth": ["a", "b"]}}, "['a', 'b']", ["a", "b"]),
        ({**VERLS, "reward_model": {"ground_truth": ["72"]}}, "72", ["72"]),
        ({**VERLS, "prompt": "How many?"}, "1200", "1200"),
        ({"Question": "?", "Ground Truth": "$x^2$"}, "x^2", "x^2"),
        ({"question": "?", "answer": "x\n#### $-1,234,567.50"}, "$-1234567.50", "$-1234567.50"),
        ({**VERLS, "prompt": "?", "reward_model": {"ground_truth": TRIVIA}}, str(TRIVIA), TRIVIA),
        ({"question": b"Gr\xc3\xb6\xc3\x9fe?", "answer": b"7"}, "7", "7"),
    ],
    ids=str,
)
def test_right_answers(row: dict[str, Any], answer: str, truth: Any) -> None:
    """As text, and as functions get it."""
    asked = read_question(row, "train", 0)
    assert (asked.answer, asked.ground_truth) == (answer, truth)
    assert TrainingQuestion.from_json(asked.to_json()) == asked


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_files(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"train{suffix}"
    if suffix == ".parquet":
        pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(pyarrow.Table.from_pylist([VERLS, VERLS]), file)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in (VERLS, VERLS)))
    assert load_questions(str(file), "data.train_files") == [read_question(VERLS, "train", i) for i in range(2)]
    assert len(load_questions([str(file), str(file)], "data.train_files")) == 4


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "How many?"}, r"answer, final_answer"),
        ({"question": "How many?", "answer": "many\n####"}, r"####"),
        ({"answer": "7"}, r"question"),
        ({"question": "?", "answer": TRIVIA}, r"answer"),
        ({**VERLS, "reward_model": {"ground_truth": math.nan}}, r"reward_model\.ground_truth"),
        ({**VERLS, "reward_model": "72"}, r"reward_model\.ground_truth"),
        ({**VERLS, "prompt": []}, r"prompt"),
        ({**VERLS, "prompt": [{"role": "user"}]}, r"prompt .*role"),
        ({"question": {"text": "How many?"}, "answer": "7"}, r"question"),
        ({**PLAIN, "extra_info": "none"}, r"extra_info"),
        ({"question": "?", "alternatives": ["1", "2"], "answer": "B"}, r"alternatives"),
        ({"question": "half a character: \ud83d", "answer": "7"}, r"surrogates"),
    ],
)
def test_a_row_without_question_or_answer_is_refused(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text(json.dumps(PLAIN) + "\n" + json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=rf"data\.train_files: .*train\.jsonl, row 1 \(from 0\): .*{message}"):
        load_questions(str(file), "data.train_files")


def test_all_questions_are_asked_before_any_is_asked_again() -> None:
    places = [order(7, 3, epoch) for epoch in range(3)]
    assert all(sorted(asked) == list(range(7)) for asked in places)
    assert len(set(map(tuple, places))) == 3
    order.cache_clear()
    assert order(7, 3, 2) == places[2], "wherever a resumed run begins"
    assert order(7, 4, 0) != places[0]


def test_the_datasets_rows(tmp_path: Path) -> None:
    for name, rows in (("train", [PLAIN] * 5), ("test", [VERLS] * 3)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = OmegaConf.create(
        {
            "train_files": str(tmp_path / "train.jsonl"),
            "val_files": str(tmp_path / "test.jsonl"),
            "run_seed": 3,
            "train_batch_size": 2,
            "responses": 4,
            "validation": {"questions": 2, "benchmarks": []},
        }
    )
    train, val = (QuestionDataset(files, None, config) for files in (config.train_files, config.val_files))
    row = train[3]
    assert (row["__rollout_n__"], row["seat"]["trainable"], row["agent_name"]) == (4, [0], "spiral_answer")
    assert GameKey(**row["key"]) == GameKey("train", 3, 2, 4) and row["key"]["group"] == 4
    assert TrainingQuestion.from_json(row["raw_prompt"]).answer == "1200"
    assert [(r["key"]["split"], r["key"]["index"], r["__rollout_n__"], r["data_source"]) for r in val] == [
        ("val", 0, 1, "gsm8k"),
        ("val", 1, 1, "gsm8k"),
    ]
    assert val[0].keys() == row.keys()


# -- what is checked before anything is started ------------------------------------------------------------------------


def check(config: DictConfig) -> None:
    check_core(config)
    Extension().check(config)


def dpo(folder: Path, *overrides: str) -> DictConfig:
    return made_configs.config(folder, "data.games_per_start=8", *overrides, groups=["loss=dpo"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(5)]
    for name in ("train", "test"):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def questions(folder: Path, *overrides: str, loss: str = "dpo") -> DictConfig:
    files = [f"data.train_files={folder}/train.jsonl", f"data.val_files={folder}/test.jsonl"]
    return made_configs.config(folder, *files, *overrides, groups=["task=questions", f"loss={loss}"])


def test_the_loss_sets_what_belongs_to_it(tmp_path: Path) -> None:
    made = dpo(tmp_path, "ref_update_freq=4")
    check(made)
    actor = made.actor_rollout_ref.actor
    assert (made.algorithm.adv_estimator, actor.policy_loss.loss_mode) == ("dpo", "dpo")
    assert (actor.use_kl_loss, actor.kl_loss_coef, made.ref_update_freq) == (True, 0.0, 4)


def test_what_goes_with_questions(folder: Path) -> None:
    check(questions(folder, "actor_rollout_ref.rollout.n=2", "data.train_batch_size=3"))
    check(questions(folder, "questions.grader=verl.utils.reward_score:default_compute_score"))
    check(questions(folder, "algorithm.adv_estimator=grpo_role", loss="clipped"))


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("algorithm.adv_estimator=rae", r"adv_estimator=rae"),
        ("actor_rollout_ref.actor.policy_loss.loss_mode=vanilla", r"loss_mode=vanilla"),
        ("actor_rollout_ref.actor.use_kl_loss=false", r"use_kl_loss=false"),
        ("algorithm.use_kl_in_reward=true", r"use_kl_in_reward=true"),
        ("data.games_per_start=1", r"data\.games_per_start=1"),
        ("algorithm.dpo_loss_type=kto", r"algorithm\.dpo_loss_type=kto"),
        ("algorithm.dpo_label_smoothing=0.5", r"dpo_label_smoothing=0\.5"),
        ("actor_rollout_ref.actor.ppo_max_token_len_per_gpu=900", r"ppo_max_token_len_per_gpu=900"),
    ],
)
def test_what_does_not_go_with_pairs_is_refused(tmp_path: Path, override: str, setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        check(dpo(tmp_path, override))


@pytest.mark.parametrize(
    ("override", "setting"),
    [
        ("actor_rollout_ref.rollout.n=1", r"rollout\.n=1"),
        ("data.train_files=nowhere.jsonl", r"data\.train_files=nowhere\.jsonl"),
        ("data.val_files=${data.train_files}", r"data\.val_files"),
        ("fsp.enabled=true", r"fsp\.enabled=true"),
        ("draw_retry.enabled=true", r"draw_retry\.enabled=true"),
        ("questions.grader=mine", r"questions\.grader=mine"),
        ("questions.grader=nobodys:function", r"questions\.grader=nobodys:function: .*ModuleNotFoundError"),
    ],
)
def test_what_does_not_go_with_questions_is_refused(folder: Path, override: str, setting: str) -> None:
    with pytest.raises(ValueError, match=setting):
        check(questions(folder, override))
