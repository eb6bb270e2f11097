"""Rows of every form that the eight data sets have, read as questions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.benchmarks.catalog import CATALOG, PAPER_AVERAGES, get_benchmark
from recipe.spiral.lab.graders.question import Question

GPQA = {
    "Question": "Which is a noble gas?",
    "Correct Answer": "Argon\n",
    "Incorrect Answer 1": "Iron",
    "Incorrect Answer 2": "Oxygen",
    "Incorrect Answer 3": "Sulphur",
    "Record ID": "rec1",
}
TEN = [f"option {number}" for number in range(10)]


@pytest.mark.parametrize(
    ("benchmark", "row", "text", "answer", "id"),
    [
        (
            "math500",
            {
                "problem": "Half?",
                "solution": "It is \\boxed{0.5}.",
                "answer": "\\frac{1}{2}",
                "unique_id": "test/1.json",
            },
            "Half?",
            "\\frac{1}{2}",
            "test/1.json",
        ),
        ("aime24", {"id": 60, "problem": "How many?", "solution": "\\boxed{204}"}, "How many?", "204", "60"),
        ("aime24", {"ID": "2024-I-1", "Problem": "How many?", "Answer": 204}, "How many?", "204", "2024-I-1"),
        ("aime25", {"problem": "How many?", "answer": "070"}, "How many?", "070", "7"),
        ("amc23", {"id": 0, "question": "How far?", "answer": 27.0}, "How far?", "27", "0"),
        (
            "olympiadbench",
            {
                "id": 1606,
                "question": "Solve.",
                "final_answer": ["$-1$", "$3$"],
                "context": None,
                "is_multiple_answer": True,
            },
            "Solve.",
            "-1, 3",
            "1606",
        ),
        (
            "olympiadbench",
            {"question": "Find x.", "context": "Let x > 0.", "final_answer": "['$[0,1)$']"},
            "Let x > 0.\nFind x.",
            "[0,1)",
            "7",
        ),
        ("minerva", {"question": "How bright?", "answer": "4.5e33"}, "How bright?", "4.5e33", "7"),
        ("math500", {"problem": "Which set?", "answer": "\\{1,2\\}"}, "Which set?", "\\{1,2\\}", "7"),
        ("math500", {"problem": "Where?", "answer": "[0, 1]"}, "Where?", "[0, 1]", "7"),
    ],
)
def test_math_rows(benchmark: str, row: dict[str, Any], text: str, answer: str, id: str) -> None:
    assert get_benchmark(benchmark).read(row, 7) == Question(benchmark, id, "math", text, answer)


def test_what_comes_before_a_question_is_asked_with_options_too() -> None:
    row = {"question": "Which?", "context": "One is red.", "options": ["red", "green"], "answer": "A"}
    assert get_benchmark("mmlu_pro").read(row, 0).prompt.startswith("One is red.\nWhich?\n\n(A) red")


def test_mmlu_pro_keeps_the_order_of_its_options() -> None:
    row = {"question_id": 70, "question": "Which?", "options": TEN, "answer": "I", "answer_index": 8}
    question = get_benchmark("MMLU-Pro").read(row, 0)
    assert (question.answer, question.choices, question.id) == ("I", tuple(TEN), "70")
    assert "(A) option 0\n" in question.prompt and "(J) option 9\n" in question.prompt


@pytest.mark.parametrize(
    ("fields", "letter"),
    [
        ({"options": ["red", "green"], "answer": "(b)"}, "B"),
        ({"options": ["red", "green"], "answer": "green"}, "B"),
        ({"options": ["red", "green"], "answer": 1}, "B"),
        ({"choices": {"label": ["A", "B"], "text": ["red", "green"]}, "answer": "B"}, "B"),
        ({"options": '["red", "green"]', "answer_index": "1"}, "B"),
        ({"options": "['red', 'green', 'N/A', 'N/A']", "answer": "B"}, "B"),
        ({"options": ["3", "1", "2"], "answer": "2"}, "C"),
        ({"choices": {"label": ["1", "2"], "text": ["red", "green"]}, "answerKey": "2"}, "B"),
    ],
)
def test_which_option_is_right(fields: dict[str, Any], letter: str) -> None:
    question = get_benchmark("mmlu_pro").read({"question": "Which?", **fields}, 0)
    assert question.answer == letter
    assert "N/A" not in question.choices


@pytest.mark.parametrize(
    ("benchmark", "row", "says"),
    [
        ("math500", {"answer": "1"}, "one of question, problem"),
        ("math500", {"problem": "Half?", "solution": "no box"}, "answer, final_answer"),
        ("math500", {"problem": "Half?", "answer": float("nan")}, "answer, final_answer"),
        ("gpqa", {"Question": "Which?", "answer": "A"}, "Correct Answer"),
        ("gpqa", {**GPQA, "Incorrect Answer 2": "Argon"}, "among the incorrect"),
        ("mmlu_pro", {"question": "Which?", "options": ["a", "b"], "answer": "C"}, "2 options"),
        (
            "mmlu_pro",
            {"question": "Which?", "options": ["a", "b"]},
            "does not follow",
        ),
        (
            "mmlu_pro",
            {"question": "Which?", "options": "a) 1 b) 2", "answer": "A"},
            "this one has question, options, answer",
        ),
        (
            "mmlu_pro",
            {"question": "Which?", "options": [{"A": "1"}, {"B": "2"}], "answer": "A"},
            "question, options, answer",
        ),
        ("mmlu_pro", {"question": "Which?", "option_a": "1", "answer": "A"}, "options"),
        ("mmlu_pro", {"question": "Which?", "options": ["x", "y"], "answer": "A", "answer_index": 1}, "answer_index"),
    ],
)
def test_a_bad_row_says_what_is_missing(benchmark: str, row: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        get_benchmark(benchmark).read(row, 0)


@settings(max_examples=50)
@given(
    text=st.text(min_size=1).filter(lambda text: text.strip() != ""),
    answers=st.lists(st.text("abcdefgh", min_size=1, max_size=5), min_size=4, max_size=4, unique=True),
    order=st.permutations(range(3)),
)
def test_gpqa_order_follows_from_the_question_alone(text: str, answers: list[str], order: list[int]) -> None:
    def row(places: list[int]) -> dict[str, Any]:
        wrong = {f"Incorrect Answer {field + 1}": answers[1 + place] for field, place in enumerate(places)}
        return {"Question": text, "Correct Answer": answers[0], **wrong}

    question = get_benchmark("gpqa").read(row([0, 1, 2]), 0)
    assert sorted(question.choices) == sorted(answers)
    assert question.choices["ABCD".index(question.answer)] == answers[0]
    assert get_benchmark("gpqa").read(row(order), 5).choices == question.choices


def test_gpqa_right_letters_are_spread() -> None:
    letters = Counter(
        get_benchmark("gpqa").read({**GPQA, "Question": f"Which of {number}?"}, number).answer for number in range(400)
    )
    assert set(letters) == set("ABCD")
    assert all(60 < count < 140 for count in letters.values())


def test_the_catalog_is_the_papers() -> None:
    assert [benchmark.title for benchmark in CATALOG.values()] == [
        *("MATH500", "AIME24", "AIME25", "OlympiadBench", "AMC23", "Minerva", "GPQA", "MMLU-Pro")
    ]
    assert PAPER_AVERAGES["Qwen3-4B-Base"]["SPIRAL, TicTacToe + Kuhn Poker"] == 42.7
    with pytest.raises(ValueError, match="known are math500, aime24"):
        get_benchmark("gsm8k")
