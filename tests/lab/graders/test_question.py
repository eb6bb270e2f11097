"""Rows of every form that the eight data sets have, read as questions."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.benchmark_questions import get_benchmark
from recipe.spiral.lab.graders.question import Question


@pytest.mark.parametrize(
    ("benchmark", "row", "text", "answer", "id"),
    [
        (
            "math500",
            {"problem": "Half?", "solution": "Not this.", "answer": "\\frac{1}{2}", "unique_id": "test/1.json"},
            "Half?",
            "\\frac{1}{2}",
            "test/1.json",
        ),
        ("aime24", {"id": 60, "problem": "How many?", "solution": "\\boxed{204}"}, "How many?", "204", "60"),
        (
            "olympiadbench",
            {"question": "Find x.", "context": "Let x > 0.", "final_answer": "['$[0,1)$']"},
            "Let x > 0.\nFind x.",
            "[0,1)",
            "7",
        ),
        ("math500", {"problem": "Which set?", "answer": "\\{1,2\\}"}, "Which set?", "\\{1,2\\}", "7"),
    ],
)
def test_math_rows(benchmark: str, row: dict[str, Any], text: str, answer: str, id: str) -> None:
    assert get_benchmark(benchmark).read(row, 7) == Question(benchmark, id, text, answer)


@pytest.mark.parametrize(
    ("fields", "letter"),
    [
        ({"options": ["red", "green"], "answer": "(b)"}, "B"),
        ({"options": ["red", "green"], "answer": "green"}, "B"),
        ({"options": "['red', 'green', 'N/A', 'N/A']", "answer": "B"}, "B"),
        ({"choices": ["red", "green"], "answer_index": 1}, "B"),
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
        ("gpqa", {"Question": "Which?", "answer": "A"}, "Correct Answer"),
        ("mmlu_pro", {"question": "Which?", "options": ["a", "b"], "answer": "C"}, "2 options"),
        ("mmlu_pro", {"question": "Which?", "option_a": "1", "answer": "A"}, "options"),
        ("mmlu_pro", {"question": "Which?", "options": ["x", "y"], "answer": "A", "answer_index": 1}, "answer_index"),
    ],
)
def test_a_bad_row_says_what_is_missing(benchmark: str, row: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        get_benchmark(benchmark).read(row, 0)


@settings(max_examples=10)
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
