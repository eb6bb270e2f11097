"""Questions to train on: the forms of their files, their order, their prompts, and their rows."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from recipe.spiral.players.records import Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.spin.answer_loop import AnswerLoop, answer_record
from recipe.spiral.spin.pairs import find_pairs
from recipe.spiral.spin.question_dataset import QuestionDataset, _row
from recipe.spiral.spin.response_scores import BoxScorer, Score
from recipe.spiral.spin.training_questions import (
    TrainingQuestion,
    load_questions,
    order,
    read_question,
    train_key,
)
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.fake_queue import FakeQueue
from tests.made_rows import rows_of
from tests.test_rollout import EOS, Engine
from tests.test_rollout import Tokenizer as CharacterTokenizer

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


def answered(index: int, value: float | None, said: int, **more: Any) -> Any:
    key = GameKey("train", 7, 1, index, group=index // 4 * 4)
    tokens = Tokens([1, 2], [said], [-0.5], (0, 0))
    return answer_record(key, read_question(PLAIN, "sums", 0), "text", tokens, False, Score(value, **more))


def test_an_answer_is_a_game_that_the_policy_wins_if_it_is_right() -> None:
    records = [answered(0, 1.0, 10), answered(1, 0.0, 11, verdict="no_answer"), answered(2, 0.0, 12)]
    assert [record.result(0) for record in records] == ["win", "loss", "loss"]
    void = answered(3, None, 13, problem="time-out")
    assert (void.discarded, void.reason) == ("void", "question 0: time-out")
    metrics = training_metrics(records, [void])
    assert metrics["games/sums/p0/win"] == pytest.approx(1 / 3) and metrics["games/discarded/void"] == 1
    assert metrics["turns/no_answer"] == pytest.approx(1 / 3)
    assert find_pairs(rows_of(records)).keys == [("u0_0_0", "u1_0_0")]
    validated = validation_metrics([*records, void])
    assert validated["val-core/sums/p0/win"] == pytest.approx(1 / 3) and "val-aux/grader/sums/p0/win_low" in validated


def test_every_session_of_a_question_is_a_response(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Through the agent loop, as verl's worker runs it: one cannot be graded, and leaves no row."""
    queue = FakeQueue.install(monkeypatch)
    said = {"right": "\\boxed{1200}", "wrong": "\\boxed{7}"}
    loop = object.__new__(AnswerLoop)
    loop.config = OmegaConf.create(
        {
            "prompt": {"template": "chat"},
            "questions": {"grader": "boxed", "seconds": 5.0, "workers": 1},
            "actor_rollout_ref": {"model": {"path": str(tmp_path)}},
        }
    )
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": EOS}))
    loop.rollout_config = OmegaConf.create({"prompt_length": 2000, "response_length": 24})
    answers = iter([said["right"], said["wrong"], "hang", said["wrong"]])
    loop.server_manager, loop.tokenizer = Engine(lambda seed: next(answers)), CharacterTokenizer()
    loop.apply_chat_template_kwargs = {}

    class Judge:
        def score(self, question: TrainingQuestion, response: str) -> Score:
            return Score(None, problem="time-out") if response == "hang" else BoxScorer(5.0).score(question, response)

    monkeypatch.setattr("recipe.spiral.spin.answer_loop.scorer", lambda *settings: Judge())
    row = _row(read_question(PLAIN, "sums", 0), train_key(5, batch=3, responses=4, index=1), 1, 4)
    row.pop("__rollout_n__")

    async def sessions() -> list[Any]:
        return [await loop.run({"temperature": 1.0}, session_id=i, uid="u", **row) for i in range(4)]

    outputs = asyncio.run(sessions())
    assert [len(turns) for turns in outputs] == [1, 1, 0, 1]
    assert [turns[0].reward_score for turns in outputs if turns] == [1.0, 0.0, 0.0]
    played = channel.take([GameKey("train", 5, 1, 4 + i) for i in range(4)])
    assert [record.key.index for record in played.records] == [4, 5, 7]
    assert {record.key.group for record in played.records} == {4}
    assert [record.reason for record in played.discarded] == ["question 0: time-out"]
    assert not queue.partitions["games"]

    def cannot_be_encoded(*parts: Any) -> Any:
        return replace(answer_record(*parts), reason=object())  # type: ignore[arg-type]

    answers = iter(said.values())
    monkeypatch.setattr("recipe.spiral.spin.answer_loop.answer_record", cannot_be_encoded)
    with pytest.raises(TypeError):
        asyncio.run(sessions())
    with pytest.raises(channel.GameFailed, match=r"train-5-1-4-0 of sums failed: TypeError: "):
        channel.raise_failures([GameKey("train", 5, 1, 4)])
