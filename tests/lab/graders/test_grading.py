"""Answers of every form, judged, and answers that would hang or end the judge; rows of every form that the eight data
sets have, read as questions."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.benchmark_questions import get_benchmark
from recipe.spiral.lab.graders.grading import Grader, Verdict, chosen
from recipe.spiral.lab.graders.question import Question

#: Powers that the judge tries to write out.
TOWER = "9^{9^{9^{9^9}}}"
COLOURS = ("red", "green", "blue", "\\text{dark red}")


def math(answer: str) -> Question:
    return Question("math500", "1", "How many?", answer)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    pytest.importorskip("math_verify")
    with Grader(seconds=20) as made:
        yield made


@pytest.mark.parametrize(
    ("answer", "response", "reason"),
    [
        ("\\frac{1}{2}", "First \\boxed{\\frac13}, no: \\boxed{\\dfrac{1}{2}}", "right"),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}{3}}", "wrong"),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}}", "unreadable"),
        ("2", "\\boxed{" + "1+" * 3000 + "1}", "unreadable"),
        ("204", "The answer is 204.", "no answer"),
        ("204", "\\boxed{204", "no answer"),
        ("0.2", "\\boxed{20\\%}", "right"),
        ("(3,\\infty)", "\\boxed{x>3}", "right"),
        ("073", "\\boxed{\\textbf{(073)}}", "right"),
    ],
)
def test_math(grader: Grader, answer: str, response: str, reason: str) -> None:
    verdict = grader.grade(math(answer), response)
    assert (verdict.reason, verdict.correct) == (reason, reason == "right")
    assert (verdict.answer is None) == (reason == "no answer")


@pytest.mark.timeout(60)
def test_what_hangs_is_ended_and_the_next_answer_is_judged() -> None:
    pytest.importorskip("math_verify")
    with Grader(seconds=0.5) as grader:
        assert grader.grade(math("7"), f"\\boxed{{{TOWER}}}") == Verdict("time-out", TOWER)
        assert grader.grade(math("\\frac{1}{2}"), "\\boxed{0.5}").correct
        process = psutil.Process(grader._judge._process.pid)  # type: ignore[union-attr]
        process.send_signal(signal.SIGKILL)
        assert grader.compare("x", "y") in ("wrong", "crash") and grader.compare("x", "y") == "wrong"
        process = psutil.Process(grader._judge._process.pid)  # type: ignore[union-attr]
    assert not process.is_running()


@pytest.mark.parametrize(
    ("content", "letter"),
    [
        ("B", "B"),
        ("\\textbf{(B)}", "B"),
        ("B) green", "B"),
        ("Option B", "B"),
        ("green", "B"),
        ("dark red", "D"),
        ("E", None),
        ("A, B", None),
        ("B) red", None),
        ("a green one", None),
        ("", None),
    ],
)
def test_letters(content: str, letter: str | None) -> None:
    assert chosen(f"I first thought \\boxed{{C}}. \\boxed{{{content}}}", COLOURS) == letter


def test_options_that_are_letters_or_numbers() -> None:
    ten = tuple(str(number) for number in range(10))
    assert [chosen(f"\\boxed{{{said}}}", ten) for said in "JK7"] == ["J", None, "H"]
    assert chosen("\\boxed{B}", ("B", "A")) == "B"
    assert chosen("\\boxed{same}", ("same", "same", "other")) is None


# -- rows of files -----------------------------------------------------------------------------------------------------


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
