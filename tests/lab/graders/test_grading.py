"""Answers of every form, judged; and answers that would hang or end the judge."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recipe.spiral.lab.graders import judges
from recipe.spiral.lab.graders.grading import Grader, Verdict, chosen
from recipe.spiral.lab.graders.question import Question

pytest.importorskip("math_verify")
#: Powers that the judge tries to write out.
TOWER = "9^{9^{9^{9^9}}}"
READY = {"ready": True}
SAME = "caller.send({'said': True})"
#: (what it does with an answer, what it says first)
StandIn = Callable[..., None]
COLOURS = ("red", "green", "blue", "\\text{dark red}")


def math(answer: str) -> Question:
    return Question("math500", "1", "math", "How many?", answer)


def choice(answer: str, choices: tuple[str, ...] = COLOURS) -> Question:
    return Question("gpqa", "1", "choice", "Which?", answer, choices)


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(seconds=20) as made:
        yield made


@pytest.mark.parametrize(
    ("answer", "response", "reason"),
    [
        ("\\frac{1}{2}", "So \\boxed{0.5}.", "right"),
        ("\\frac{1}{2}", "First \\boxed{\\frac13}, no: \\boxed{\\dfrac{1}{2}}", "right"),
        ("\\frac{1}{2}", "\\boxed{\\frac{1}{3}}", "wrong"),
        ("204", "\\boxed{205}", "wrong"),
        ("204", "The answer is 204.", "no answer"),
        ("204", "\\boxed{204", "no answer"),
        ("[0,1)", "\\boxed{[0, 1)}", "right"),
        ("-1, 3", "\\boxed{3, -1}", "right"),
        ("\\left(3, \\frac{\\pi}{2}\\right)", "\\boxed{(3, \\pi/2)}", "right"),
        ("0.2", "\\boxed{20\\%}", "right"),
        ("(3,\\infty)", "\\boxed{x>3}", "right"),
        ("073", "\\boxed{\\textbf{(073)}}", "right"),
        ("BADC", "\\boxed{ABCD}", "wrong"),
    ],
)
def test_math(grader: Grader, answer: str, response: str, reason: str) -> None:
    verdict = grader.grade(math(answer), response)
    assert (verdict.reason, verdict.correct) == (reason, reason == "right")
    assert (verdict.answer is None) == (reason == "no answer")


@pytest.mark.timeout(60)
def test_what_hangs_is_ended_and_the_next_answer_is_judged() -> None:
    with Grader(seconds=0.5) as grader:
        began = time.monotonic()
        assert grader.grade(math("7"), f"\\boxed{{{TOWER}}}") == Verdict(False, "time-out", TOWER)
        assert time.monotonic() - began < 50
        assert grader.grade(math("\\frac{1}{2}"), "\\boxed{0.5}").correct


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Puts a worker in place of ours of which only what it does with an answer is of interest."""

    def put(answering: str, first: dict[str, object] = READY) -> None:
        imports = "import os, signal, time\nfrom multiprocessing.connection import Connection\ncaller = Connection(0)"
        loop = f"while True:\n    asked = caller.recv()\n    {answering}"
        (tmp_path / "worker.py").write_text(f"{imports}\ncaller.send({first!r})\n{loop}\n")
        monkeypatch.setattr(judges, "WORKER", tmp_path / "worker.py")

    return put


@pytest.mark.parametrize(
    "crash", ["os._exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)", "caller.send({'raised': 'x'})"]
)
def test_a_crash_is_told_apart(stand_in: StandIn, crash: str) -> None:
    stand_in(crash)
    with Grader(seconds=5) as grader:
        assert [grader.compare("x", "y") for _ in range(2)] == ["crash", "crash"]
        assert grader.compare("7", "07") == "right"


def test_processes_end_with_the_grader(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in(f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid())); {SAME}")
    with Grader(seconds=5) as grader:
        assert grader.compare("x", "y") == "right"
        pid = int((tmp_path / "pid").read_text())
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("content", "letter"),
    [
        ("B", "B"),
        ("(B)", "B"),
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


def test_ten_options_and_options_that_are_letters_or_numbers() -> None:
    ten = tuple(str(number) for number in range(10))
    assert chosen("\\boxed{J}", ten) == "J"
    assert chosen("\\boxed{K}", ten) is None
    assert chosen("\\boxed{7}", ten) == "H"
    assert chosen("\\boxed{B}", ("B", "A")) == "B"
    assert chosen("\\boxed{same}", ("same", "same", "other")) is None


def test_without_math_verify_the_extra_is_named_and_letters_are_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with Grader() as grader:
        assert grader.grade(choice("B"), "\\boxed{B}").correct
        for _ in range(2):
            with pytest.raises(ImportError, match=r"pip install math-verify"):
                grader.grade(math("x"), "\\boxed{y}")
