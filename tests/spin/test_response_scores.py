"""Scores of responses: the benchmarks' grader, a function of the user's, and all that a function may do wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator

import psutil
import pytest

from recipe.spiral.spin.response_scores import FunctionScorer, Score, scorer
from recipe.spiral.spin.training_questions import TrainingQuestion


def question(answer: str) -> TrainingQuestion:
    return TrainingQuestion("sums", "3", "What is 3 + 4?", answer, "project/sums", answer, {})


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Where workers find the functions: the folder that a run is started in."""
    monkeypatch.chdir(request.path.parent)


@pytest.fixture
def awkward(path: None) -> Iterator[FunctionScorer]:
    made = FunctionScorer("grading_functions:awkward", 1.0)
    yield made
    made.close()


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
    assert scorer("boxed", 5.0).score(question("7"), response) == score


def test_verls_own_function_grades_gsm8k() -> None:
    made = FunctionScorer("verl.utils.reward_score:default_compute_score", 20.0)
    asked = TrainingQuestion("gsm8k", "0", [{"role": "user", "content": "?"}], "72", "openai/gsm8k", "72", {})
    try:
        scores = [made.score(asked, said).value for said in ("so it is\n#### 72", "#### 71", "72")]
    finally:
        made.close()
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
        ("list", "not a number: [1.0]"),
        ("die", "crash"),
        ("exit", "crash"),
    ],
)
def test_what_a_function_does_wrong_costs_its_answer_and_has_a_name(
    awkward: FunctionScorer, response: str, problem: str
) -> None:
    assert awkward.score(question("7"), response) == Score(None, problem=problem)
    assert awkward.score(question("7"), "fine").value == 0.5, "the next answer is graded"
    assert awkward.score(question("7"), "true").value == 1.0


@pytest.mark.parametrize("response", ["hang", "spin", "program"])
def test_a_function_that_never_returns_is_ended(awkward: FunctionScorer, response: str) -> None:
    """With the programs that it has started."""
    awkward.score(question("7"), "fine")
    started = time.monotonic()
    assert awkward.score(question("7"), response).problem == "time-out"
    assert time.monotonic() - started < 20
    assert not programs()
    assert awkward.score(question("7"), "fine").value == 0.5


def programs() -> list[psutil.Process]:
    """Those that a function has started, and that do not end now."""
    started = [one for one in psutil.process_iter(["cmdline"]) if one.info["cmdline"] == ["sleep", "1234"]]
    return psutil.wait_procs(started, 2)[1]
