"""A benchmark's metrics, from its graded samples.

Every rate has the number of things that it is a rate of. Intervals are over questions, because questions are drawn from
a larger world; the samples of a question count together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from ...training.metrics import wilson
from ..graders.grading import FAILURES, Grader, Verdict
from ..graders.question import Question
from .benchmark_answers import Sample


@dataclass(frozen=True)
class Rate:
    """A mean over ``count`` things (0 if there are none), with a 95% interval if one was estimated."""

    value: float
    count: int
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Rate:
        return cls(sum(values) / max(len(values), 1), len(values))


#: A sample and the verdict on it.
Graded = tuple[Sample, Verdict]


@dataclass(frozen=True)
class Score:
    """A benchmark's numbers.

    Attributes:
        benchmark: its id.
        questions: the number of questions that were asked.
        samples: the number of answers to each question; if it differs, the least.
        avg: avg@k, the mean over questions of the share of right answers. Its count is questions.
        pass_at: k -> the probability that one of k answers is right. Counts are questions with at least k answers.
        maj: maj@k, the share of questions whose most frequent answer is right. Its count is questions.
        truncated: the share of answers that the length limit ended. Its counts are answers, here and below.
        no_answer: the share of answers without a closed box.
        unreadable: the share of answers whose box holds nothing that can be judged.
        time_outs: the share of answers that took the grader too long. They count as wrong.
        crashes: the share of answers that crashed the grader. They count as wrong.
        comparisons_failed: the share of comparisons between wrong answers (for maj@k) that timed out or crashed. Such
            answers count as different.
        tokens: the mean length of an answer.
    """

    benchmark: str
    questions: int
    samples: int
    avg: Rate
    pass_at: Mapping[int, Rate]
    maj: Rate
    truncated: Rate
    no_answer: Rate
    unreadable: Rate
    time_outs: Rate
    crashes: Rate
    comparisons_failed: Rate
    tokens: Rate


def judge(questions: Sequence[Question], samples: Sequence[Sample], grader: Grader) -> tuple[list[Graded], list[Score]]:
    """The samples with their verdicts, in their order, and each benchmark's numbers, in the order of the questions.

    It takes a bounded time: the grader limits each answer, and each comparison of two answers for maj@k.
    """
    by_id = {(question.benchmark, question.id): question for question in questions}
    verdicts = [grader.grade(by_id[sample.key[:2]], sample.text) for sample in samples]
    graded = list(zip(samples, verdicts, strict=True))
    benchmarks = dict.fromkeys(question.benchmark for question in questions)
    return graded, [score(benchmark, graded, grader.compare) for benchmark in benchmarks]


def score(benchmark: str, graded: Sequence[Graded], compare: Callable[[str, str], str]) -> Score:
    """A benchmark's numbers; samples of other benchmarks are left out. ``compare`` is ``Grader.compare``."""
    by_question: dict[str, list[Graded]] = {}
    for sample, verdict in sorted(graded, key=lambda answer: answer[0].number):
        if sample.benchmark == benchmark:
            by_question.setdefault(sample.question, []).append((sample, verdict))
    groups = [[verdict for _, verdict in group] for group in by_question.values()]
    verdicts = [verdict for group in groups for verdict in group]
    samples = [sample for group in by_question.values() for sample, _ in group]
    comparisons: list[str] = []

    def same(first: str, second: str) -> bool:
        comparisons.append(compare(first, second))
        return comparisons[-1] == "right"

    def share(reason: str) -> Rate:
        return Rate.of([float(verdict.reason == reason) for verdict in verdicts])

    least = min(map(len, groups))
    ks = sorted({least, *(2**power for power in range(least.bit_length()))})  # 1, 2, 4, ..., and all
    return Score(
        benchmark=benchmark,
        questions=len(groups),
        samples=least,
        avg=_avg(groups),
        pass_at={k: Rate.of([pass_at(len(group), sum(v.correct for v in group), k) for group in groups]) for k in ks},
        maj=Rate.of([float(majority(group, same)) for group in groups]),
        truncated=Rate.of([float(sample.truncated) for sample in samples]),
        no_answer=share("no answer"),
        unreadable=share("unreadable"),
        time_outs=share("time-out"),
        crashes=share("crash"),
        comparisons_failed=Rate.of([float(reason in FAILURES) for reason in comparisons]),
        tokens=Rate.of([float(sample.tokens) for sample in samples]),
    )


def pass_at(samples: int, right: int, k: int) -> float:
    """The probability that one of k answers, drawn without replacement, is right (arXiv 2107.03374, equation 1)."""
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def majority(verdicts: Sequence[Verdict], same: Callable[[str, str], bool]) -> bool:
    """Whether a question's most frequent answer is right.

    Right answers are one group; wrong answers form groups of the same answer. Samples without an answer, or with one
    that the grader could not judge, have no vote. Of groups of the same size the first counts. Samples have no order of
    their own, so this is not biased. ``same`` says whether two wrong answers are the same.
    """

    def together(first: Verdict, second: Verdict) -> bool:
        if first.correct or second.correct:
            return first.correct and second.correct
        return first.answer == second.answer or same(str(first.answer), str(second.answer))

    votes: dict[Verdict, int] = {}
    for verdict in verdicts:
        if verdict.answer is not None and verdict.reason in ("right", "wrong"):
            group = next((first for first in votes if together(first, verdict)), verdict)
            votes[group] = votes.get(group, 0) + 1
    return max(votes, key=lambda verdict: votes[verdict]).correct if votes else False


def _avg(groups: Sequence[Sequence[Verdict]]) -> Rate:
    """The mean of the questions' means. Its interval is that of as many independent answers as would vary like them."""
    means = [fmean(verdict.correct for verdict in group) for group in groups]
    count, mean = len(means), fmean(means)
    squared_error = (variance(means) if count > 1 else 0.0) / count
    most = sum(map(len, groups))
    effective = mean * (1 - mean) / squared_error if squared_error > 0 else 0.0 if mean in (0, 1) else math.inf
    size = min(max(effective, count), most)
    return Rate(mean, count, *wilson(mean * size, size))
