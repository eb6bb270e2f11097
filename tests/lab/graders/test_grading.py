"""Answers of every form, judged; and answers that would hang or end the judge."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import psutil
import pytest

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
        assert grader.grade(math("7"), f"\\boxed{{{TOWER}}}") == Verdict(False, "time-out", TOWER)
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
