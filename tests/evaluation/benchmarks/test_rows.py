"""Questions as rows of a validation set, and verl's reward function for them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from recipe.spiral.evaluation.benchmarks.grading import Grader
from recipe.spiral.evaluation.benchmarks.questions import Question
from recipe.spiral.evaluation.benchmarks.rows import compute_score, rows, with_same_columns

MATH = Question("math500", "a", "math", "Half of one?", "\\frac{1}{2}")
CHOICE = Question("gpqa", "b", "choice", "Which?", "B", ("red", "green"))


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    pytest.importorskip("math_verify")
    with Grader(workers=1, seconds=20) as made:
        yield made


@pytest.mark.parametrize("template", ["qwen3", "qwen3_general"])
def test_rows(template: str) -> None:
    first, second = rows([MATH, CHOICE], template, samples=4)
    assert first["raw_prompt"] == [
        {
            "role": "user",
            "content": "Question: Half of one?\n"
            "Please reason step by step, and put your final answer within \\boxed{}.",
        }
    ]
    assert first["agent_name"] == "single_turn_agent"
    assert first["data_source"] == "benchmark/math500"
    assert first["reward_model"] == {"style": "rule", "ground_truth": "\\frac{1}{2}"}
    assert first["__rollout_n__"] == 4
    assert [row["index"] for row in (first, second)] == [0, 1]
    assert "(A) red\n(B) green" in second["raw_prompt"][0]["content"]


@pytest.mark.parametrize(
    ("template", "says"), [("r1", "plain text"), ("qwen3_think", "begins the response"), ("typo", "known templates")]
)
def test_templates_that_verl_cannot_use_here(template: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        rows([MATH], template, samples=1)


def test_a_prompt_that_would_be_cut_is_refused() -> None:
    def words(messages: list[dict[str, str]]) -> int:
        return sum(len(message["content"].split()) for message in messages)

    assert len(rows([MATH], "qwen3", 1, words, 100)) == 1
    with pytest.raises(ValueError, match=r"question a of math500 has 16 tokens.*max_prompt_length=10"):
        rows([MATH], "qwen3", 1, words, 10)


def test_beside_games_all_have_the_same_columns() -> None:
    game = {"raw_prompt": "", "index": 0, "game": "Nim", "__rollout_n__": 1}
    mixed = with_same_columns([game, *rows([MATH], "chat", 2)])
    assert len({tuple(row) for row in mixed}) == 1
    assert (mixed[0]["reward_model"], mixed[0]["game"], mixed[1]["game"]) == ({}, "Nim", None)
    assert mixed[1]["reward_model"]["ground_truth"] == "\\frac{1}{2}"


@pytest.mark.parametrize(
    ("question", "response", "score", "pred"),
    [
        (MATH, "\\boxed{0.5}", 1.0, "\\frac{1}{2}"),
        (MATH, "\\boxed{0.4}", 0.0, "0.4"),
        (MATH, "a half", 0.0, ""),
        (CHOICE, "\\boxed{(B)}", 1.0, "B"),
        (CHOICE, "\\boxed{red}", 0.0, "A"),
    ],
)
def test_the_reward_function(grader: Grader, question: Question, response: str, score: float, pred: str) -> None:
    (row,) = rows([question], "chat", 1)
    told = compute_score(
        data_source=row["data_source"],
        solution_str=response,
        ground_truth=row["reward_model"]["ground_truth"],
        extra_info={**row["extra_info"], "num_turns": 2},
        grader=grader,
        reward_router_address=None,
    )
    assert told == {
        "score": score,
        "acc": score,
        "pred": pred,
        "no_answer": float(pred == ""),
        "not_graded": 0.0,
    }


def test_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="openai/gsm8k"):
        compute_score("openai/gsm8k", "7", "7", {})


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys, recipe.spiral.evaluation.benchmarks as b, recipe.spiral.evaluation.benchmarks.rows, "
        "recipe.spiral.evaluation.benchmarks.run, recipe.spiral.evaluation.benchmarks.table\n"
        "heavy = {'verl', 'ray', 'vllm', 'torch', 'datasets', 'math_verify', 'sympy', 'transformers'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
