"""Answers to questions: their scores, what a function of the user's may do wrong, and the games that they become."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from omegaconf import OmegaConf

from recipe.spiral.lab.graders.grading import Grader
from recipe.spiral.players.records import Tokens
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.rollouts import channel
from recipe.spiral.spin.graded_answers import AnswerLoop, Score, answer_record, by_box, scorer
from recipe.spiral.spin.pairs import find_pairs
from recipe.spiral.spin.question_dataset import question_row
from recipe.spiral.spin.training_questions import TrainingQuestion
from recipe.spiral.training.metrics import training_metrics, validation_metrics
from tests.fake_queue import FakeQueue, rows_of
from tests.test_rollout import EOS, Engine
from tests.test_rollout import Tokenizer as CharacterTokenizer


def question(answer: str) -> TrainingQuestion:
    return TrainingQuestion("sums", "3", "What is 3 + 4?", answer, "project/sums", answer, {})


#: A function that grades, as users write them: it does what the response says.
GRADER = """
import math, os, subprocess, sys, time

def awkward(solution_str, **more):
    if solution_str == "raise":
        raise ZeroDivisionError("nothing there")
    if solution_str == "hang":
        time.sleep(1000)
    if solution_str == "spin":
        while True:
            pass
    if solution_str == "die":
        os._exit(3)
    if solution_str == "exit":
        sys.exit("no more")
    if solution_str == "program":
        subprocess.run(["sleep", "1234"])
    returned = {"nan": math.nan, "infinite": {"score": -math.inf}, "text": "good", "number as text": "0.7"}
    return {**returned, "none": None, "dict": {"acc": 1.0}, "true": True}.get(solution_str, 0.5)
"""


@pytest.fixture
def awkward(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], Score]:
    """Scores by that function, which a process of its own finds in the folder that a run is started in."""
    (tmp_path / "grading_functions.py").write_text(GRADER)
    monkeypatch.chdir(tmp_path)
    return partial(scorer("grading_functions:awkward", 1.0), question("7"))


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("It is \\boxed{7}.", Score(1.0, "legal", "7")),
        ("\\boxed{7.0}", Score(1.0, "legal", "7.0")),
        ("\\boxed{8}", Score(0.0, "legal", "8")),
        ("7", Score(0.0, "no_answer", None)),
    ],
)
def test_the_box_is_compared_as_for_benchmarks(response: str, score: Score) -> None:
    assert scorer("boxed", 5.0)(question("7"), response) == score


def test_verls_own_function_grades_gsm8k() -> None:
    asked = TrainingQuestion("gsm8k", "0", [{"role": "user", "content": "?"}], "72", "openai/gsm8k", "72", {})
    score = partial(scorer("verl.utils.reward_score:default_compute_score", 20.0), asked)
    scores = [score(said).value for said in ("so it is\n#### 72", "#### 71", "72")]
    assert scores == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("response", "problem"),
    [
        ("raise", "raised: ZeroDivisionError: nothing there"),
        ("nan", "not a number: nan"),
        ("infinite", "not a number: -inf"),
        ("text", "not a number: 'good'"),
        ("number as text", "not a number: '0.7'"),
        ("none", "not a number: None"),
        ("dict", "not a number: None"),
        ("die", "crash"),
        ("exit", "crash"),
    ],
)
def test_what_a_function_does_wrong_costs_its_answer_and_has_a_name(
    awkward: Callable[[str], Score], response: str, problem: str
) -> None:
    assert awkward(response) == Score(None, problem=problem)
    assert awkward("fine").value == 0.5, "the next answer is graded"
    assert awkward("true").value == 1.0


@pytest.mark.parametrize("response", ["hang", "spin", "program"])
def test_a_function_that_never_returns_is_ended(awkward: Callable[[str], Score], response: str) -> None:
    """With the programs that it has started."""
    awkward("fine")
    started = time.monotonic()
    assert awkward(response).problem == "time-out"
    assert time.monotonic() - started < 20
    assert not programs()
    assert awkward("fine").value == 0.5


def programs() -> list[psutil.Process]:
    """Those that a function has started, and that do not end now."""
    started = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "1234"]]
    return psutil.wait_procs(started, 2)[1]


# -- games -------------------------------------------------------------------------------------------------------------


def answered(index: int, value: float | None, said: int, **more: Any) -> Any:
    key = GameKey("train", 7, 1, index, group=index // 4 * 4)
    tokens = Tokens([1, 2], [said], [-0.5], (0, 0))
    return answer_record(key, question("1200"), "text", tokens, False, Score(value, **more))


def test_an_answer_is_a_game_that_the_policy_wins_if_it_is_right() -> None:
    records = [answered(0, 1.0, 10), answered(1, 0.0, 11, verdict="no_answer"), answered(2, 0.0, 12)]
    assert [record.result(0) for record in records] == ["win", "loss", "loss"]
    void = answered(3, None, 13, problem="time-out")
    assert (void.discarded, void.reason) == ("void", "question 3: time-out")
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

    def score(question: TrainingQuestion, response: str) -> Score:
        return Score(None, problem="time-out") if response == "hang" else by_box(Grader(5.0), question, response)

    monkeypatch.setattr("recipe.spiral.spin.graded_answers.scorer", lambda *settings: score)
    row = question_row(question("1200"), GameKey("train", 5, 1, 4, group=4), 1, 4)
    row.pop("__rollout_n__")

    async def sessions() -> list[Any]:
        return [await loop.run({"temperature": 1.0}, session_id=i, uid="u", **row) for i in range(4)]

    outputs = asyncio.run(sessions())
    assert [len(turns) for turns in outputs] == [1, 1, 0, 1]
    assert [turns[0].reward_score for turns in outputs if turns] == [1.0, 0.0, 0.0]
    played = channel.take([GameKey("train", 5, 1, 4 + i) for i in range(4)])
    assert [record.key.index for record in played.records] == [4, 5, 7]
    assert {record.key.group for record in played.records} == {4}
    assert [record.reason for record in played.discarded] == ["question 3: time-out"]
    assert not queue.partitions["games"]

    def cannot_be_encoded(*parts: Any) -> Any:
        return replace(answer_record(*parts), reason=object())  # type: ignore[arg-type]

    answers = iter(said.values())
    monkeypatch.setattr("recipe.spiral.spin.graded_answers.answer_record", cannot_be_encoded)
    with pytest.raises(TypeError):
        asyncio.run(sessions())
    with pytest.raises(channel.GameFailed, match=r"train-5-1-4-0 of sums failed: TypeError: "):
        channel.raise_failures([GameKey("train", 5, 1, 4)])
