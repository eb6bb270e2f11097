"""What a validation's answers come to, worked by hand: shares with their counts, and what is kept."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.evaluation.benchmarks.answers import Reply, Sample
from recipe.spiral.lab.evaluation.benchmarks.benchmark_metrics import judge
from recipe.spiral.lab.evaluation.benchmarks.validation_benchmarks import Entry, ValidationBenchmarks, benchmark_metrics
from recipe.spiral.lab.graders.grading import Grader
from recipe.spiral.lab.graders.question import Question
from recipe.spiral.players.intervals import wilson
from recipe.spiral.players.seeds import GameKey, derive_seed
from recipe.spiral.storage.record_writer import AnswerFolder

MATH = Entry(id="math500", samples=2)
#: Whole numbers and letters need no process to judge them.
QUESTIONS = [Question("math500", f"q{number}", "math", "How many?", str(number)) for number in range(2)]
CHOICE = Question("gpqa", "g", "choice", "Which?", "B", ("red", "green"))
ASKED = [(MATH, question, number) for question in QUESTIONS for number in (0, 1)]
ASKED.append((Entry(id="gpqa"), CHOICE, 0))
REPLIES = [
    Reply("\\boxed{0}", 4, False),
    Reply("\\boxed{7}", 6, False),
    Reply("so many", 8, True),
    Reply("\\boxed{8}", 2, False),
    Reply("\\boxed{green}", 5, False),
]


def judged(
    asked: list[tuple[Entry, Question, int]], replies: list[Reply]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """As a run's validation has them."""
    asking = ValidationBenchmarks([], 5)
    asking.asked = asked
    keys = (GameKey("question", 0, 0, place) for place in range(len(replies)))
    return asking.judge({key: asdict(reply) for key, reply in zip(keys, replies, strict=True)})


def test_shares_have_their_counts() -> None:
    metrics = judged(ASKED, REPLIES)[1]
    math = {name.split("/", 2)[2]: value for name, value in metrics.items() if "/math500/" in name}
    low, high = wilson(1, 4)
    assert math == {
        "avg@2": 0.25,
        "pass@2": 0.5,
        "maj@2": 0.5,  # one right, one wrong: the first that was there
        "count": 2.0,
        "answers": 4.0,
        "truncated": 0.25,
        "no_answer": 0.25,
        "unreadable": 0.0,
        "not_graded": 0.0,
        "tokens": 5.0,
        "avg_low": pytest.approx(low, abs=0.1),
        "avg_high": pytest.approx(high, abs=0.1),
    }
    assert 0 <= math["avg_low"] < 0.25 < math["avg_high"] <= 1
    core = {name for name in metrics if name.startswith("val-core/gpqa/")}
    assert core == {f"val-core/gpqa/{name}" for name in ("avg@1", "pass@1", "count", "answers", "truncated")}
    assert metrics["val-core/gpqa/avg@1"] == 1.0


def test_an_answer_that_cannot_be_judged_holds_nobody_up() -> None:
    """Its process is ended; it counts as wrong, and as not judged."""
    pytest.importorskip("math_verify")
    question = Question("math500", "t", "math", "How many?", "10^{7}+1")
    started = time.monotonic()
    with Grader(seconds=0.3) as short:
        sample = Sample.of(question, 0, 1, Reply("\\boxed{9^{9^{9^{9^9}}}}", 9, False))
        metrics = benchmark_metrics(judge([question], [sample], short)[1])
    assert (metrics["val-core/math500/avg@1"], metrics["val-aux/math500/not_graded"]) == (0.0, 1.0)
    assert time.monotonic() - started < 60


def test_answers_are_kept_with_their_verdicts(tmp_path: Path) -> None:
    folder = AnswerFolder(tmp_path / "benchmarks")
    file = folder.write(40, judged(ASKED, REPLIES)[0])
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    assert file.name == "step_000040.jsonl"
    assert [(row["benchmark"], row["question"], row["number"], row["seed"]) for row in rows] == [
        (*question, derive_seed("benchmark", 5, *question))
        for question in [*(("math500", f"q{q}", n) for q in (0, 1) for n in (0, 1)), ("gpqa", "g", 0)]
    ]
    assert [row["reason"] for row in rows] == ["right", "wrong", "no answer", "wrong", "right"]
    assert [row["correct"] for row in rows] == [True, False, False, False, True]
    assert (rows[2]["text"], rows[2]["truncated"], rows[4]["answer"]) == ("so many", True, "B")


def test_what_came_after_a_checkpoint_goes(tmp_path: Path) -> None:
    folder = AnswerFolder(tmp_path / "benchmarks")
    folder.cut_back(0)  # of a run without any
    graded = judged(ASKED, REPLIES)[0]
    for step in (0, 50, 100):
        folder.write(step, graded)
    (folder.path / "step_000060 (copy).jsonl").touch()
    folder.cut_back(50)
    left = ["step_000000.jsonl", "step_000050.jsonl", "step_000060 (copy).jsonl"]
    assert sorted(file.name for file in folder.path.iterdir()) == left
