"""Asks an evaluation's policies the reasoning benchmarks, with the engine that plays its games."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tqdm import tqdm

from ...players.player import Generate, PromptTooLong
from ...players.prompts import Template, general_template
from ...players.seeds import derive_seed
from ..graders.grading import check_installed
from ..graders.question import Question
from .benchmark_answers import Sample
from .benchmark_questions import load
from .evaluation_folder import Lines
from .game_loop import for_each
from .policies import Policy
from .settings import Benchmarks, Settings


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
    """A policy's samples in the evaluation's folder, a line of JSON each. Those that were made with other settings, or
    of another version of a question, are left alone."""

    def __init__(self, lines: Lines, policy: Policy, settings: Settings) -> None:
        self._lines = lines
        template = template_of(policy, settings.benchmarks).name
        how = [settings.seed, _sampling(settings.benchmarks), policy.identity, template]
        digest = hashlib.blake2b(json.dumps(how, sort_keys=True).encode(), digest_size=16).hexdigest()
        self._head = {"policy": policy.name, "how": digest}
        stored = map(json.loads, lines)
        samples = [Sample(**each["sample"]) for each in stored if self._head.items() <= each.items()]
        self._samples = {(sample.digest, sample.key): sample for sample in samples}

    def add(self, sample: Sample) -> None:
        self._lines.append(json.dumps({**self._head, "sample": asdict(sample)}).encode() + b"\n")
        self._samples[sample.digest, sample.key] = sample

    def missing(self, questions: Sequence[Question], samples: int) -> list[tuple[Question, int]]:
        """The questions that are still to be answered, each with the number of the sample."""
        return [
            (question, number)
            for question in questions
            for number in range(samples)
            if (question.digest, (question.benchmark, question.id, number)) not in self._samples
        ]

    def of(self, questions: Sequence[Question], samples: int) -> list[Sample]:
        """So many samples of each question, in the order of the questions."""
        return [
            self._samples[question.digest, (question.benchmark, question.id, number)]
            for question in questions
            for number in range(samples)
        ]


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
    longest, seconds = settings.benchmarks.max_prompt_length, settings.engine.seconds

    async def work(wanted: tuple[Question, int]) -> None:
        question, number = wanted
        place = f"{question.benchmark}, question {question.id}"
        seed = derive_seed("benchmark", settings.seed, question.benchmark, question.id, number)
        prompt_ids = template.encode(tokenizer, question.prompt, **policy.asked.chat_template_kwargs)
        if len(prompt_ids) > longest:
            raise PromptTooLong(f"{place}: {len(prompt_ids)} tokens are more than the {longest} that prompts may have")
        try:
            async with asyncio.timeout(seconds):
                tokens, truncated = await generate(prompt_ids, {**sampling, "seed": seed})
        except TimeoutError as error:
            raise TimeoutError(f"{place}, sample {number}: no answer within engine.seconds={seconds:g}") from error
        text, count = str(tokenizer.decode(tokens.response_ids, skip_special_tokens=True)), len(tokens.response_ids)
        answers.add(Sample(question.benchmark, question.id, number, seed, question.digest, text, count, truncated))
        bar.update()

    with tqdm(total=len(missing), desc=f"benchmarks, {policy.name}", unit="answer") as bar:
        await for_each(missing, work, settings.concurrency)


def template_of(policy: Policy, settings: Benchmarks) -> Template:
    return general_template(settings.template or policy.template)


def _sampling(settings: Benchmarks) -> dict[str, Any]:
    return {**vars(settings.sampling), "max_tokens": settings.max_response_length}
