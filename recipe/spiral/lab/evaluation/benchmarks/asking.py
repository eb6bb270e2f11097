"""Asks an evaluation's policies the reasoning benchmarks, with the engine that plays its games."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from ....players.player import PromptTooLong
from ....players.policy import Generate
from ....players.prompts import Template, general_template
from ...database import Database
from ...graders.grading import check_installed
from ...graders.question import Question
from ..matches.loop import for_each
from ..matches.store import OtherEvaluation, differences
from ..policies.evaluated_policy import Policy
from ..settings import Benchmarks, Settings
from .answers import Sample, reply_to, sample_seed
from .data import load


def load_questions(settings: Benchmarks) -> list[Question]:
    """The questions of all benchmarks.

    Raises:
        ValueError: there are none, or they cannot be read.
        ImportError: the package that judges answers is missing.
    """
    if settings.names:
        check_installed("benchmarks.names")
    names = dict.fromkeys(settings.names)
    return [question for name in names for question in load(name, settings.path, settings.limit)]


class Answers:
    """A policy's samples, stored in the evaluation's database.

    Raises:
        OtherEvaluation: the answers that are there were made with other settings.
    """

    def __init__(self, database: Database, policy: Policy, settings: Settings) -> None:
        self._table, self._policy = database.table("answers"), policy.name
        ours = {
            "seed": settings.seed,
            "sampling": _sampling(settings.benchmarks),
            "policy": policy.identity,
            "template": template_of(policy, settings.benchmarks).name,
        }
        ours = json.loads(json.dumps(ours))
        samples = [Sample(**row) for _, row in self._table.items(policy.name)]
        stored = database.table("settings").get("answers", policy.name)
        if not samples:
            database.table("settings").put("answers", policy.name, value=ours)
        elif changes := "; ".join(differences(stored, ours)):
            raise OtherEvaluation(
                f"{database.file}: {policy.name} has answered benchmarks with other settings ({changes}): use the same "
                "settings, or another folder"
            )
        self._samples = {sample.key: sample for sample in samples}

    def add(self, sample: Sample) -> None:
        self._table.add(self._policy, *sample.key, value=asdict(sample))
        self._samples[sample.key] = sample

    def missing(self, questions: Sequence[Question], samples: int) -> list[tuple[Question, int]]:
        """The questions that are still to be answered, each with the number of the sample.

        Raises:
            OtherEvaluation: a question was another one when it was answered.
        """
        missing = []
        for question in questions:
            for number in range(samples):
                sample = self._samples.get((question.benchmark, question.id, number))
                if sample is None:
                    missing.append((question, number))
                elif sample.digest != question.digest:
                    raise OtherEvaluation(
                        f"{self._policy} has answered another version of question {question.id} of "
                        f"{question.benchmark}: use the earlier data, or another folder"
                    )
        return missing

    def of(self, questions: Sequence[Question], samples: int) -> list[Sample]:
        """So many samples of each question, in the order of the questions."""
        keys = ((question.benchmark, question.id, number) for question in questions for number in range(samples))
        return [self._samples[key] for key in keys]


async def ask(
    policy: Policy,
    tokenizer: Any,
    generate: Generate,
    missing: Sequence[tuple[Question, int]],
    answers: Answers,
    settings: Settings,
) -> None:
    """Have a policy answer questions, ``settings.concurrency`` at a time, and store each answer as it comes.

    Raises:
        PromptTooLong: a question is longer than ``benchmarks.max_prompt_length``.
        TimeoutError: an answer took longer than ``engine.seconds``.
    """
    template, sampling = template_of(policy, settings.benchmarks), _sampling(settings.benchmarks)
    prompt_length, seconds = settings.benchmarks.max_prompt_length, settings.engine.seconds

    async def work(wanted: tuple[Question, int]) -> None:
        question, number = wanted
        seed = sample_seed(settings.seed, question, number)
        prompt_ids = template.encode(tokenizer, question.prompt, **policy.chat_template_kwargs)
        try:
            async with asyncio.timeout(seconds):
                reply = await reply_to(prompt_ids, generate, tokenizer, {**sampling, "seed": seed}, prompt_length)
        except PromptTooLong as error:
            raise PromptTooLong(f"{question.benchmark}, question {question.id}: {error}") from error
        except TimeoutError as error:
            raise TimeoutError(
                f"{question.benchmark}, question {question.id}, sample {number}: no answer within "
                f"engine.seconds={seconds:g}"
            ) from error
        answers.add(Sample.of(question, number, seed, reply))
        bar.update()

    with tqdm(total=len(missing), desc=f"benchmarks, {policy.name}", unit="answer") as bar:
        await for_each(missing, work, settings.concurrency)


def template_of(policy: Policy, settings: Benchmarks) -> Template:
    return general_template(settings.template or policy.template)


def _sampling(settings: Benchmarks) -> dict[str, Any]:
    return {**settings.sampling.to_dict(), "max_tokens": settings.max_response_length}
