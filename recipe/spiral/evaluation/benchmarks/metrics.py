"""What a benchmark's graded samples come to. Every rate has the number that it is a rate of.

Questions are what is drawn from a larger world, not samples: intervals are over questions, each one's samples together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .answers import Sample
from .grading import Grader, Verdict
from .questions import Question

#: Of a normal distribution, 95 % lie within so many standard deviations.
_Z = 1.96


@dataclass(frozen=True)
class Rate:
    """A mean over ``count`` things, with a 95 % interval where it was estimated; NaN where there are none."""

    value: float
    count: int
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Rate:
        return cls(sum(values) / len(values) if values else math.nan, len(values))


@dataclass(frozen=True)
class Graded:
    """A sample and the verdict on it."""

    sample: Sample
    verdict: Verdict


@dataclass(frozen=True)
class Score:
    """A benchmark's numbers.

    Attributes:
        benchmark: its id.
        questions: how many were asked.
        samples: how many answers there are to each; the least of them.
        avg: avg@k, the mean over questions of the share of right answers; its count is questions.
        pass_at: k -> the chance that one of k answers is right; counts are questions with k answers at least.
        maj: maj@k, the share of questions whose most frequent answer is right; its count is questions.
        truncated: the share of answers that the length limit ended; its count is the answers of which this is known.
        no_answer: the share of answers without a closed box; counts are answers, here and below.
        unreadable: the share whose box holds nothing that can be judged.
        time_outs: the share that the grader gave up on; they count as wrong.
        crashes: the share that the grader failed on otherwise; they count as wrong.
        comparisons_failed: of comparisons between wrong answers, for maj@k: a time-out or crash counts as different.
        tokens: the mean length of an answer; its count is the answers of which this is known.
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

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it; a NaN is None there."""
        return _without_nan(asdict(self))


def grade(questions: Sequence[Question], samples: Sequence[Sample], grader: Grader) -> list[Graded]:
    """The samples with their verdicts, in their order.

    Raises:
        ValueError: a sample's question is not among the questions.
    """
    by_id = {(question.benchmark, question.id): question for question in questions}
    unknown = [sample.key for sample in samples if sample.key[:2] not in by_id]
    if unknown:
        raise ValueError(f"answers to questions that were not asked: {unknown[:5]}")
    verdicts = grader.grade_all([(by_id[sample.key[:2]], sample.text) for sample in samples])
    return [Graded(sample, verdict) for sample, verdict in zip(samples, verdicts, strict=True)]


def score(benchmark: str, graded: Sequence[Graded], compare: Callable[[str, str], str]) -> Score:
    """A benchmark's numbers.

    Args:
        benchmark: its id; samples of others are left out.
        graded: of any benchmarks.
        compare: whether two answers are the same, as ``Grader.compare`` says it.

    Raises:
        ValueError: it has no samples.
    """
    by_question: dict[str, list[Graded]] = {}
    for one in graded:
        if one.sample.benchmark == benchmark:
            by_question.setdefault(one.sample.question, []).append(one)
    if not by_question:
        raise ValueError(f"{benchmark}: no answers")
    groups = [sorted(group, key=lambda one: one.sample.number) for group in by_question.values()]
    all_of_it = [one for group in groups for one in group]
    compared: list[str] = []

    def same(one: str, other: str) -> bool:
        compared.append(compare(one, other))
        return compared[-1] == "right"

    majorities = [float(majority([one.verdict for one in group], same)) for group in groups]

    def share(reason: str) -> Rate:
        return Rate.of([float(one.verdict.reason == reason) for one in all_of_it])

    least = min(map(len, groups))
    return Score(
        benchmark=benchmark,
        questions=len(groups),
        samples=least,
        avg=_avg([[one.verdict.correct for one in group] for group in groups]),
        pass_at={k: _pass_at(groups, k) for k in _powers_of_two(least)},
        maj=Rate.of(majorities),
        truncated=Rate.of([float(one.sample.truncated) for one in all_of_it if one.sample.truncated is not None]),
        no_answer=share("no answer"),
        unreadable=share("unreadable"),
        time_outs=share("time-out"),
        crashes=share("crash"),
        comparisons_failed=Rate.of([float(reason in ("time-out", "crash")) for reason in compared]),
        tokens=Rate.of([float(one.sample.tokens) for one in all_of_it if one.sample.tokens is not None]),
    )


def pass_at(samples: int, right: int, k: int) -> float:
    """The chance that one of k answers, drawn from these without putting back, is right (arXiv 2107.03374, equation 1).

    Raises:
        ValueError: not 1 <= k <= samples, or not 0 <= right <= samples.
    """
    if not 1 <= k <= samples or not 0 <= right <= samples:
        raise ValueError(f"pass@{k} of {samples} answers, {right} of them right: there is no such thing")
    return 1.0 - math.comb(samples - right, k) / math.comb(samples, k)


def majority(verdicts: Sequence[Verdict], same: Callable[[str, str], bool]) -> bool:
    """Whether the most frequent answer is right.

    Right answers are one group; wrong ones belong together where they are the same answer. Who gave none, or one that
    the grader could not judge, has no vote. Of groups of one size, the one that was there first wins: samples have no
    order of their own, so this favours none.

    Args:
        verdicts: a question's, in the order of its samples.
        same: whether two wrong answers are the same.
    """
    groups: list[tuple[Verdict, int]] = []
    for verdict in verdicts:
        if verdict.answer is None or verdict.reason not in ("right", "wrong"):
            continue
        for place, (first, votes) in enumerate(groups):
            if _together(first, verdict, same):
                groups[place] = first, votes + 1
                break
        else:
            groups.append((verdict, 1))
    return max(groups, key=lambda group: group[1])[0].correct if groups else False


def _together(one: Verdict, other: Verdict, same: Callable[[str, str], bool]) -> bool:
    if one.correct or other.correct:
        return one.correct and other.correct
    assert one.answer is not None and other.answer is not None
    return one.answer == other.answer or same(one.answer, other.answer)


def wilson(mean: float, size: float) -> tuple[float, float]:
    """A 95 % interval of a rate from ``size`` independent things (Wilson's), which is not empty at 0 and 1."""
    centre = (mean + _Z**2 / (2 * size)) / (1 + _Z**2 / size)
    half = _Z / (1 + _Z**2 / size) * math.sqrt(mean * (1 - mean) / size + _Z**2 / (4 * size**2))
    return max(0.0, centre - half), min(1.0, centre + half)


def _avg(answers: Sequence[Sequence[bool]]) -> Rate:
    """The mean of questions' means. Its interval is that of as many independent answers as would spread like them."""
    means = [sum(group) / len(group) for group in answers]
    count, mean = len(means), sum(means) / len(means)
    squared_error = sum((one - mean) ** 2 for one in means) / max(count - 1, 1) / count
    most = sum(map(len, answers))
    effective = mean * (1 - mean) / squared_error if squared_error > 0 else 0.0 if mean in (0, 1) else math.inf
    low, high = wilson(mean, min(max(effective, count), most))
    return Rate(mean, count, low, high)


def _pass_at(groups: Sequence[Sequence[Graded]], k: int) -> Rate:
    right = [(len(group), sum(one.verdict.correct for one in group)) for group in groups]
    return Rate.of([pass_at(samples, correct, k) for samples, correct in right if samples >= k])


def _powers_of_two(most: int) -> list[int]:
    """1, 2, 4, ..., and ``most`` itself."""
    return sorted({most, *(2**power for power in range(most.bit_length()))})


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(name): _without_nan(inner) for name, inner in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value
