"""Reasoning benchmarks in an evaluation: policies with weights answer each question some times, ``graders`` judge the
answers, and here they are counted.

Every rate has the number of things that it is a rate of. Intervals are over questions, because questions are drawn from
a larger world; the samples of a question count together.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, variance

from tqdm import tqdm

from ...players.player import PromptTooLong
from ...players.prompts import general_template
from ...players.seeds import derive_seed
from ...training.metrics import wilson
from ..graders.grading import FAILURES, Grader, Verdict, check_installed
from ..graders.question import Question
from .benchmark_questions import load
from .evaluation_folder import Lines
from .matches import Seating, for_each
from .policies import Policy
from .ratings import Row
from .settings import Benchmarks, Settings


@dataclass(frozen=True)
class Sample:
    """A model's answer to a question.

    Attributes:
        number: which of the question's samples it is, from 0.
        digest: the question's.
        text: without special tokens.
        tokens: the number of tokens, special ones included.
        truncated: whether the length limit ended it.
    """

    benchmark: str
    question: str
    number: int
    seed: int
    digest: str
    text: str
    tokens: int
    truncated: bool


#: A sample and the verdict on it.
Graded = tuple[Sample, Verdict]


def load_questions(settings: Benchmarks) -> list[Question]:
    """The questions of all benchmarks.

    Raises:
        ValueError: there are none, or they cannot be read.
        ImportError: the package that judges answers is missing.
    """
    check_installed("benchmarks.names")
    path = None if settings.path is None else Path(settings.path)
    return [question for name in dict.fromkeys(settings.names) for question in load(name, path, settings.limit)]


class Answers:
    """A policy's samples in the evaluation's folder, a line of JSON each. Those that were made with other settings, or
    of another version of a question, are left alone."""

    def __init__(self, lines: Lines, policy: Policy, settings: Settings) -> None:
        self._lines, self.policy, self._settings = lines, policy, settings
        asked = settings.benchmarks
        self._template = general_template(policy.template)
        self._sampling = {**vars(asked.sampling), "max_tokens": asked.max_response_length}
        how = [settings.seed, self._sampling, policy.identity, self._template.name]
        digest = hashlib.blake2b(json.dumps(how, sort_keys=True).encode(), digest_size=16).hexdigest()
        self._head = {"policy": policy.name, "how": digest}
        stored = map(json.loads, lines)
        samples = [Sample(**each["sample"]) for each in stored if self._head.items() <= each.items()]
        self._samples = {_place(sample): sample for sample in samples}

    def of(self, question: Question, number: int) -> Sample | None:
        """A question's answer of that number; None: it is still to be asked."""
        return self._samples.get((question.benchmark, question.id, question.digest, number))

    def missing(self, questions: Sequence[Question]) -> list[tuple[Question, int]]:
        """The questions that are still to be asked, each with the number of the sample."""
        numbers = range(self._settings.benchmarks.samples)
        return [(question, number) for question in questions for number in numbers if self.of(question, number) is None]

    async def ask(self, questions: Sequence[Question], seating: Seating) -> None:
        """Have the policy answer what is missing, ``concurrency`` questions at a time, and store each answer at once.

        Raises:
            PromptTooLong: a question is longer than ``benchmarks.max_prompt_length``.
        """
        tokenizer, generate = seating.tokenizer(self.policy), seating.generate_as(self.policy)
        longest, missing = self._settings.benchmarks.max_prompt_length, self.missing(questions)

        async def work(wanted: tuple[Question, int]) -> None:
            question, number = wanted
            seed = derive_seed("benchmark", self._settings.seed, question.benchmark, question.id, number)
            prompt_ids = self._template.encode(tokenizer, question.prompt, **self.policy.asked.chat_template_kwargs)
            if len(prompt_ids) > longest:
                raise PromptTooLong(
                    f"benchmarks.max_prompt_length={longest}: {question.benchmark}, question {question.id} has "
                    f"{len(prompt_ids)} tokens"
                )
            tokens, truncated = await generate(prompt_ids, {**self._sampling, "seed": seed})
            text, count = str(tokenizer.decode(tokens.response_ids, skip_special_tokens=True)), len(tokens.response_ids)
            sample = Sample(question.benchmark, question.id, number, seed, question.digest, text, count, truncated)
            self._lines.append(json.dumps({**self._head, "sample": asdict(sample)}).encode() + b"\n")
            self._samples[_place(sample)] = sample
            bar.update()

        with tqdm(total=len(missing), desc=f"benchmarks, {self.policy.name}", unit="answer") as bar:
            await for_each(missing, work, self._settings.concurrency)

    def judged(self, questions: Sequence[Question], grader: Grader) -> list[Row]:
        """Each benchmark's figures, in the order of the questions.

        It takes a bounded time: the grader limits each answer, and each comparison of two answers for maj@k.
        """
        graded: dict[str, list[list[Graded]]] = defaultdict(list)
        for question in questions:
            samples = (self.of(question, number) for number in range(self._settings.benchmarks.samples))
            verdicts = [(sample, grader.grade(question, sample.text)) for sample in samples if sample is not None]
            graded[question.benchmark].append(verdicts)
        return [score(benchmark, groups, grader.compare) for benchmark, groups in graded.items()]


def _place(sample: Sample) -> tuple[str, str, str, int]:
    return sample.benchmark, sample.question, sample.digest, sample.number


# -- figures -----------------------------------------------------------------------------------------------------------


def score(benchmark: str, graded: Sequence[Sequence[Graded]], compare: Callable[[str, str], str]) -> Row:
    """A benchmark's figures, a row of ``results.json``.

    Args:
        graded: by question, the same number of samples of each.
        compare: ``Grader.compare``.
    """
    groups = [[verdict for _, verdict in group] for group in graded]
    verdicts = [verdict for group in groups for verdict in group]
    answers = [sample for group in graded for sample, _ in group]
    comparisons: list[str] = []

    def same(first: str, second: str) -> bool:
        comparisons.append(compare(first, second))
        return comparisons[-1] == "right"

    def share_of(reason: str) -> Row:
        return _share([verdict.reason == reason for verdict in verdicts])

    samples = len(groups[0])
    ks = sorted({samples, *(2**power for power in range(samples.bit_length()))})  # 1, 2, 4, ..., and all
    rights = [sum(verdict.correct for verdict in group) for group in groups]
    return {
        "benchmark": benchmark,
        "questions": len(groups),
        "samples": samples,
        "avg": _avg(groups),
        "pass_at": {k: _share([pass_at(samples, right, k) for right in rights]) for k in ks},
        "maj": _share([majority(group, same) for group in groups]),
        "truncated": _share([answer.truncated for answer in answers]),
        "no_answer": share_of("no answer"),
        "unreadable": share_of("unreadable"),
        "time_outs": share_of("time-out"),
        "crashes": share_of("crash"),
        "comparisons_failed": _share([reason in FAILURES for reason in comparisons]),
        "tokens": _share([answer.tokens for answer in answers]),
    }


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


def _share(values: Sequence[float]) -> Row:
    """A mean over so many things; 0 if there are none."""
    return {"value": sum(map(float, values)) / max(len(values), 1), "count": len(values), "low": None, "high": None}


def _avg(groups: Sequence[Sequence[Verdict]]) -> Row:
    """The mean of the questions' means. Its interval is that of as many independent answers as would vary like them."""
    means = [fmean(verdict.correct for verdict in group) for group in groups]
    count, mean = len(means), fmean(means)
    squared_error = (variance(means) if count > 1 else 0.0) / count
    most = sum(map(len, groups))
    effective = mean * (1 - mean) / squared_error if squared_error > 0 else 0.0 if mean in (0, 1) else math.inf
    size = min(max(effective, count), most)
    low, high = wilson(mean * size, size)
    return {"value": mean, "count": count, "low": low, "high": high}
