"""Benchmarks in a run's validation: their questions as rows of the dataset, their answers judged and counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...play.seeds import GameKey
from .asked import Asked, parse_entries, to_ask
from .grading import Grader
from .metrics import Graded, Rate, Score, grade, score
from .rows import with_questions
from .run import Reply, Sample


class AskedBenchmarks:
    """``serving.benchmarks.Benchmarks``, by the config's ``validation.benchmarks``.

    Args:
        entries: the config's.
        seed: the run's.
    """

    def __init__(self, entries: Any, seed: int) -> None:
        self.asked = to_ask(parse_entries(entries), seed)
        self._seed = seed

    def rows(self, games: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return with_questions(games, self.asked, self._seed)

    def judge(self, answers: Mapping[GameKey, Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, float]]:
        in_order = [Reply(**answers[key]) for key in sorted(answers)]
        with Grader() as grader:
            graded, scores = judge(self.asked, in_order, grader)
        return [{**asdict(one.sample), **asdict(one.verdict)} for one in graded], benchmark_metrics(scores)


def judge(asked: Sequence[Asked], replies: Sequence[Reply], grader: Grader) -> tuple[list[Graded], list[Score]]:
    """The answers with their verdicts, and each benchmark's numbers, in the order in which they were asked.

    Takes a bounded time: no answer, and no comparison of two for maj@k, more than the grader's.

    Args:
        asked: which answers were wanted.
        replies: those that were given, in the same order.
        grader: judges them.
    """
    samples = [
        Sample(one.question.benchmark, one.question.id, one.number, one.seed, one.question.digest, **asdict(reply))
        for one, reply in zip(asked, replies, strict=True)
    ]
    questions = list({(one.question.benchmark, one.question.id): one.question for one in asked}.values())
    graded = grade(questions, samples, grader)
    return graded, [score(name, graded, grader.compare) for name in dict.fromkeys(one.entry.id for one in asked)]


def benchmark_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """``val-core/{benchmark}/...`` and ``val-aux/{benchmark}/...``.

    avg@k, pass@k, and for several samples maj@k: shares of the questions, whose number is ``count``; avg_low and
    avg_high: the 95 % interval over questions. truncated, no_answer, unreadable, not_graded (the grader gave up on
    them, or failed): shares of the answers, whose number is ``answers``. tokens: an answer's mean length.
    """
    metrics: dict[str, float] = {}
    for one in scores:
        core, aux, k = f"val-core/{one.benchmark}", f"val-aux/{one.benchmark}", one.samples
        metrics |= {
            f"{core}/avg@{k}": one.avg.value,
            f"{core}/pass@{k}": one.pass_at[k].value,
            f"{core}/count": float(one.questions),
            f"{core}/truncated": one.truncated.value,
            f"{core}/answers": float(one.no_answer.count),
            f"{aux}/no_answer": one.no_answer.value,
            f"{aux}/unreadable": one.unreadable.value,
            f"{aux}/not_graded": one.time_outs.value + one.crashes.value,
            f"{aux}/tokens": one.tokens.value,
        }
        metrics |= {f"{core}/maj@{k}": one.maj.value} if k > 1 else {}
        metrics |= _interval(f"{aux}/avg", one.avg)
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _interval(name: str, rate: Rate) -> dict[str, float]:
    return {f"{name}_{end}": bound for end, bound in (("low", rate.low), ("high", rate.high)) if bound is not None}
