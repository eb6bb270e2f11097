"""Asks an evaluation's policies the reasoning benchmarks, with the engine that plays its games."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

from tqdm import tqdm

from ...extras import install
from ...players.base import PromptTooLong
from ...players.policy import Generate
from ...players.prompts import Template, general_template
from ...questions.grading import Grader
from ...questions.question import Question
from ...storage.database import Database
from ..policies.policy import Policy
from ..settings import Benchmarks, Settings
from .answers import Answers, Sample, asker, sample_seed
from .data import load
from .metrics import Score, grade, score
from .table import table


def load_questions(settings: Benchmarks) -> list[Question]:
    """The questions of all benchmarks.

    Raises:
        NoData, ValueError: there are none, or they cannot be read.
        ImportError: a package is missing, the one that judges answers included.
    """
    if settings.names and importlib.util.find_spec("math_verify") is None:
        raise ImportError(f"benchmarks.names: answers are judged by math-verify: {install('math')}")
    names = dict.fromkeys(settings.names)
    return [question for name in names for question in load(name, settings.path, settings.limit)]


def stored_answers(database: Database, policy: Policy, settings: Settings) -> Answers:
    """The answers that a policy has given.

    Raises:
        OtherEvaluation: it gave them with other settings.
    """
    answer_settings = {
        "seed": settings.seed,
        "sampling": _sampling(settings.benchmarks),
        "policy": policy.identity,
        "template": _template(policy, settings.benchmarks).name,
    }
    return Answers(database, policy.name, answer_settings)


async def ask(
    policy: Policy,
    tokenizer: Any,
    generate: Generate,
    missing: Sequence[tuple[Question, int]],
    answers: Answers,
    settings: Settings,
) -> None:
    """Have a policy answer questions, ``settings.concurrency`` at a time, and store each answer as it comes.

    Args:
        tokenizer: the policy's.
        generate: its engine's.
        missing: the questions, each with the number of the sample.
        answers: take the samples.

    Raises:
        PromptTooLong: a question is longer than ``benchmarks.max_prompt_length``.
        TimeoutError: an answer took longer than ``engine.seconds``.
    """
    template, sampling = _template(policy, settings.benchmarks), _sampling(settings.benchmarks)

    def decode(ids: list[int]) -> str:
        return str(tokenizer.decode(ids, skip_special_tokens=True))

    reply_to = asker(generate, decode, settings.benchmarks.max_prompt_length)
    waiting = iter(missing)  # one for all workers

    async def work(bar: tqdm) -> None:
        for question, number in waiting:
            seed = sample_seed(settings.seed, question, number)
            prompt_ids = template.encode(tokenizer, question.prompt, **settings.data.apply_chat_template_kwargs)
            try:
                async with asyncio.timeout(settings.engine.seconds):
                    reply = await reply_to(prompt_ids, {**sampling, "seed": seed})
            except PromptTooLong as error:
                raise PromptTooLong(f"{question.benchmark}, question {question.id}: {error}") from error
            except TimeoutError as error:
                raise TimeoutError(
                    f"{question.benchmark}, question {question.id}, sample {number}: no answer within "
                    f"engine.seconds={settings.engine.seconds:g}"
                ) from error
            answers.add(Sample.of(question, number, seed, reply))
            bar.update()

    try:
        with tqdm(total=len(missing), desc=f"benchmarks, {policy.name}", unit="answer") as bar:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(settings.concurrency, len(missing))):
                    group.create_task(work(bar))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


def scores_of(questions: Sequence[Question], samples: Mapping[str, Sequence[Sample]]) -> dict[str, list[Score]]:
    """Every policy's scores, by benchmark.

    Raises:
        ImportError: math-verify is not installed.
    """
    benchmarks = dict.fromkeys(question.benchmark for question in questions)
    scores = {}
    with Grader() as grader:
        for policy, answered in samples.items():
            graded = grade(questions, answered, grader)
            scores[policy] = [score(benchmark, graded, grader.compare) for benchmark in benchmarks]
    return scores


def tables(scores: Mapping[str, Sequence[Score]], paper_model: str | None) -> list[str]:
    """The scores as tables for people, beside the paper's numbers."""
    return [f"Benchmarks: {policy}\n\n{table(rows, paper_model)}" for policy, rows in scores.items()]


def _template(policy: Policy, settings: Benchmarks) -> Template:
    return general_template(settings.template or policy.template)


def _sampling(settings: Benchmarks) -> dict[str, Any]:
    return {**settings.sampling.to_dict(), "max_tokens": settings.max_response_length}
