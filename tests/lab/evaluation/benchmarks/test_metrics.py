"""avg@k, pass@k and maj@k against cases worked by hand and brute force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.benchmark_answers import Sample
from recipe.spiral.lab.evaluation.benchmark_scores import Graded, majority, pass_at, score
from recipe.spiral.lab.graders.grading import Verdict

RIGHT = Verdict(True, "right", "7")
NONE = Verdict(False, "no answer")
LATE = Verdict(False, "time-out", "9^9")


def wrong(answer: str) -> Verdict:
    return Verdict(False, "wrong", answer)


def graded(verdicts: Sequence[Sequence[Verdict]], benchmark: str = "aime24") -> list[Graded]:
    return [
        (Sample(benchmark, str(question), number, 0, "", "text", 10 * (number + 1), number % 2 == 1), verdict)
        for question, group in enumerate(verdicts)
        for number, verdict in enumerate(group)
    ]


def same_text(one: str, other: str) -> str:
    return "right" if one == other else "wrong"


@given(st.lists(st.booleans(), min_size=1, max_size=7), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_right_answer(right: list[bool], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(right)))
    draws = [any(draw) for draw in combinations(right, k)]
    assert pass_at(len(right), sum(right), k) == pytest.approx(sum(draws) / len(draws))


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([RIGHT, wrong("1"), RIGHT], True),
        ([wrong("1"), RIGHT, wrong("1")], False),
        ([wrong("1/2"), wrong("0.5"), RIGHT], False),  # one answer, written in two ways
        ([wrong("1"), RIGHT], False),  # a tie goes to the first
        ([NONE, NONE, RIGHT], True),  # who says nothing has no vote
        ([LATE, LATE, RIGHT], True),
        ([NONE, LATE], False),
    ],
)
def test_majority(verdicts: list[Verdict], expected: bool) -> None:
    assert majority(verdicts, lambda one, other: {one, other} == {"1/2", "0.5"}) is expected


def test_a_score_with_all_its_counts() -> None:
    made = score(
        "aime24",
        [*graded([[RIGHT, RIGHT, wrong("1"), NONE], [wrong("1"), wrong("1"), RIGHT, LATE]]), *graded([[NONE]], "gpqa")],
        same_text,
    )
    assert (made.questions, made.samples) == (2, 4)
    assert (made.avg.value, made.avg.count) == (3 / 8, 2)
    assert {k: (rate.value, rate.count) for k, rate in made.pass_at.items()} == {
        1: (3 / 8, 2),
        2: (pytest.approx((5 / 6 + 1 / 2) / 2), 2),
        4: (1.0, 2),
    }
    assert (made.maj.value, made.maj.count) == (1 / 2, 2)
    assert (made.no_answer.value, made.no_answer.count) == (1 / 8, 8)
    assert (made.time_outs.value, made.crashes.value, made.crashes.count) == (1 / 8, 0, 8)
    assert (made.truncated.value, made.truncated.count) == (1 / 2, 8)
    assert (made.tokens.value, made.tokens.count) == (25, 8)
    assert made.comparisons_failed.count == 0
    json.dumps(asdict(made), allow_nan=False)


def test_the_interval_is_over_questions_not_samples() -> None:
    # Ten questions, of which each is always right or always wrong: many samples tell no more than one.
    few = score("aime24", graded([[RIGHT]] * 5 + [[wrong("1")]] * 5), same_text).avg
    many = score("aime24", graded([[RIGHT] * 16] * 5 + [[wrong("1")] * 16] * 5), same_text).avg
    assert few.low is not None and many.low is not None and few.high is not None and many.high is not None
    assert many.high - many.low == pytest.approx(few.high - few.low)
    # Where each is right half the time, they do.
    mixed = score("aime24", graded([[RIGHT] * 8 + [wrong("1")] * 8] * 10), same_text).avg
    assert mixed.low is not None and mixed.low > many.low
    never = score("aime24", graded([[wrong("1")] * 16] * 10), same_text).avg
    assert never.low == 0 and never.high is not None and 0.2 < never.high < 0.35
