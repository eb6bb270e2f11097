"""Benchmarks in a run's validation: their questions as rows of the dataset, their answers judged and counted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ...players.seeds import GameKey
from ...questions.grading import Grader
from .answers import Reply, Sample
from .entries import AnswerRequest, parse_entries, requests_of
from .metrics import Graded, Rate, Score, grade, score
from .rows import with_questions


class ValidationBenchmarks:
    """The benchmarks of the config's ``validation.benchmarks``; a ``serving.benchmarks.Benchmarks``.

    Args:
        entries: the config's.
        seed: the run's.
    """

    def __init__(self, entries: Any, seed: int) -> None:
        self.requests = requests_of(parse_entries(entries), seed)
        self._seed = seed

    def rows(self, games: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        return with_questions(games, self.requests, self._seed)

    def judge(self, answers: Mapping[GameKey, Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, float]]:
        in_order = [Reply(**answers[key]) for key in sorted(answers)]
        with Grader() as grader:
            graded, scores = judge(self.requests, in_order, grader)
        return [{**asdict(answer.sample), **asdict(answer.verdict)} for answer in graded], benchmark_metrics(scores)


def judge(
    requests: Sequence[AnswerRequest], replies: Sequence[Reply], grader: Grader
) -> tuple[list[Graded], list[Score]]:
    """The answers with their verdicts, and each benchmark's scores, in the order of the requests.

    It takes a bounded time: the grader limits each answer, and each comparison of two answers for maj@k.

    Args:
        requests: which answers were wanted.
        replies: those that were given, in the same order.
        grader: judges them.
    """
    samples = [
        Sample.of(request.question, request.number, request.seed, reply)
        for request, reply in zip(requests, replies, strict=True)
    ]
    questions = {(request.question.benchmark, request.question.id): request.question for request in requests}
    graded = grade(list(questions.values()), samples, grader)
    benchmarks = dict.fromkeys(request.entry.id for request in requests)
    return graded, [score(benchmark, graded, grader.compare) for benchmark in benchmarks]


def benchmark_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """``val-core/{benchmark}/...`` and ``val-aux/{benchmark}/...``.

    avg@k, pass@k, and for several samples maj@k are shares of the questions, whose number is ``count``; avg_low and
    avg_high are the 95 % interval over questions. truncated, no_answer, unreadable and not_graded (the grader took too
    long, or failed) are shares of the answers, whose number is ``answers``. tokens is an answer's mean length.
    """
    metrics: dict[str, float] = {}
    for row in scores:
        core, aux, k = f"val-core/{row.benchmark}", f"val-aux/{row.benchmark}", row.samples
        metrics |= {
            f"{core}/avg@{k}": row.avg.value,
            f"{core}/pass@{k}": row.pass_at[k].value,
            f"{core}/count": float(row.questions),
            f"{core}/truncated": row.truncated.value,
            f"{core}/answers": float(row.no_answer.count),
            f"{aux}/no_answer": row.no_answer.value,
            f"{aux}/unreadable": row.unreadable.value,
            f"{aux}/not_graded": row.time_outs.value + row.crashes.value,
            f"{aux}/tokens": row.tokens.value,
        }
        metrics |= {f"{core}/maj@{k}": row.maj.value} if k > 1 else {}
        metrics |= _interval(f"{aux}/avg", row.avg)
    return {name: value for name, value in metrics.items() if not math.isnan(value)}


def _interval(name: str, rate: Rate) -> dict[str, float]:
    return {f"{name}_{end}": bound for end, bound in (("low", rate.low), ("high", rate.high)) if bound is not None}
