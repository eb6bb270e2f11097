"""What a validation's answers come to: judged, counted under verl's names, and kept as JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from ...disk import write_whole
from .asked import Asked
from .grading import Grader
from .metrics import Graded, Rate, Score, grade, score
from .run import Reply, Sample


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
    avg_high: the 95 % interval over questions. cut_off, no_answer, unreadable, not_graded (the grader gave up on them,
    or failed): shares of the answers, whose number is ``answers``. tokens: an answer's mean length.
    """
    metrics: dict[str, float] = {}
    for one in scores:
        core, aux, k = f"val-core/{one.benchmark}", f"val-aux/{one.benchmark}", one.samples
        metrics |= {
            f"{core}/avg@{k}": one.avg.value,
            f"{core}/pass@{k}": one.pass_at[k].value,
            f"{core}/count": float(one.questions),
            f"{core}/cut_off": one.cut_off.value,
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


class AnswerFolder:
    """A run's answers: one JSON-lines file per validation, written whole or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def write(self, step: int, graded: Sequence[Graded]) -> Path:
        """Each answer with its verdict, in the order in which they were asked."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / f"step_{step:06d}.jsonl"
        rows = ({**asdict(one.sample), **asdict(one.verdict)} for one in graded)
        write_whole(file, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
        return file

    def cut_back(self, step: int) -> None:
        """Remove what was written after ``step``."""
        for file in self.path.glob("step_*.jsonl"):
            if int(file.stem.removeprefix("step_")) > step:
                file.unlink()
