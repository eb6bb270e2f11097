"""A benchmark's metrics, from its graded samples, and their table for people, with the paper's numbers.

Every rate has the number of things that it is a rate of. Intervals are over questions, because questions are drawn from
a larger world; the samples of a question count together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from ....players.intervals import wilson
from ...graders.grading import FAILURES, Grader, Verdict
from ...graders.question import Question
from ..outputs.tables import aligned
from .answers import Sample
from .catalog import CATALOG, PAPER, PAPER_AVERAGES

HEAD = (
    *("benchmark", "questions", "k", "avg@k", "95 %", "pass@k", "maj@k"),
    *("truncated", "no answer", "not graded", "tokens"),
)


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


def table(scores: Sequence[Score], paper_model: str | None = None) -> str:
    """A row for each benchmark, their mean, and the paper's: of this model, or of all its models."""
    known = list(CATALOG)
    rows = [_row(score) for score in sorted(scores, key=lambda score: known.index(score.benchmark))]
    mean = Rate.of([score.avg.value for score in scores])  # each benchmark with the same weight, as in the paper
    whole = {score.benchmark for score in scores if score.questions >= CATALOG[score.benchmark].questions}
    note = "" if whole == set(CATALOG) else ", not the paper's eight benchmarks with all their questions"
    means = [["mean over benchmarks, avg@k", "%", "benchmarks"], [f"this run{note}", _percent(mean), str(mean.count)]]
    for model in [paper_model] if paper_model else PAPER_AVERAGES:
        for training, percent in PAPER_AVERAGES[model].items():
            means.append([f"{PAPER}: {model}, {training}", f"{percent:.1f}", str(len(CATALOG))])
    return "\n\n".join([aligned([HEAD, *rows], left=1), aligned(means, left=1), _legend(scores)])


def _row(score: Score) -> list[str]:
    known = CATALOG[score.benchmark]
    asked = str(score.questions) if score.questions >= known.questions else f"{score.questions} of {known.questions}"
    low, high = score.avg.low, score.avg.high
    interval = "-" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}"
    failed = Rate(score.time_outs.value + score.crashes.value, score.time_outs.count)
    return [
        known.title,
        asked,
        str(score.samples),
        _percent(score.avg),
        interval,
        _percent(score.pass_at[score.samples]),
        _percent(score.maj),
        _share(score.truncated),
        _share(score.no_answer),
        _share(failed),
        f"{score.tokens.value:.0f} ({score.tokens.count})",
    ]


def _legend(scores: Sequence[Score]) -> str:
    text = (
        "avg@k, pass@k and maj@k in percent of questions, with a 95 % interval over questions; other shares are of "
        "answers, with their number. Not graded: the grader timed out or crashed; such answers count as wrong. The "
        "paper's numbers are means over its eight benchmarks."
    )
    compared = [score.comparisons_failed for score in scores]
    failed = sum(round(rate.value * rate.count) for rate in compared)
    total = sum(rate.count for rate in compared)
    return text + (f" For maj@k, {failed} of {total} comparisons of answers failed." if failed else "")


def _percent(rate: Rate) -> str:
    return f"{100 * rate.value:.1f}"


def _share(rate: Rate) -> str:
    return f"{100 * rate.value:.1f} % ({rate.count})"
