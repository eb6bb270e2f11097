"""Answers to benchmarks' questions: what a model is asked, what it replies, and where an evaluation stores it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...players.base import PromptTooLong
from ...players.policy import Generate
from ...players.seeds import derive_seed
from ...questions.question import Question
from ...storage.database import Database
from ..play.manifest import OtherEvaluation, differences


@dataclass(frozen=True)
class Reply:
    """What a model answered.

    Attributes:
        text: without special tokens.
        tokens: the number of tokens, special ones included.
        truncated: whether the length limit ended it.
    """

    text: str
    tokens: int
    truncated: bool


@dataclass(frozen=True)
class Sample:
    """A reply to a question: the ``number``-th of its samples, from 0. ``digest`` is the question's."""

    benchmark: str
    question: str
    number: int
    seed: int
    digest: str
    text: str
    tokens: int | None
    truncated: bool | None

    @classmethod
    def of(cls, question: Question, number: int, seed: int, reply: Reply) -> Sample:
        return cls(question.benchmark, question.id, number, seed, question.digest, **asdict(reply))

    @property
    def key(self) -> tuple[str, str, int]:
        return self.benchmark, self.question, self.number


#: ``ask(prompt_ids, sampling)``; ``sampling`` holds a ``seed``.
Ask = Callable[[list[int], Mapping[str, Any]], Awaitable[Reply]]


def sample_seed(seed: int, question: Question, number: int) -> int:
    """The seed of a question's ``number``-th sample in a run of that seed."""
    return derive_seed("benchmark", seed, question.benchmark, question.id, number)


def asker(generate: Generate, decode: Callable[[list[int]], str], prompt_length: int) -> Ask:
    """Asks an engine.

    Args:
        generate: the engine's.
        decode: response ids -> text without special tokens.
        prompt_length: the longest prompt, in tokens. ``PromptTooLong`` is raised for a longer one; it is never cut.
    """

    async def ask(prompt_ids: list[int], sampling: Mapping[str, Any]) -> Reply:
        if len(prompt_ids) > prompt_length:
            raise PromptTooLong(f"{len(prompt_ids)} tokens are more than the {prompt_length} that prompts may have")
        generation = await generate(prompt_ids, sampling)
        return Reply(decode(generation.token_ids), len(generation.token_ids), generation.truncated)

    return ask


class Answers:
    """A policy's samples, stored in the evaluation's database.

    Args:
        database: the evaluation's.
        policy: the policy's name.
        settings: what its answers depend on besides the questions: seed, sampling, weights, template.

    Raises:
        OtherEvaluation: the answers that are there were made with other settings.
    """

    def __init__(self, database: Database, policy: str, settings: Mapping[str, Any]) -> None:
        self._table, self._policy = database.table("answers"), policy
        ours = json.loads(json.dumps(settings))
        stored = database.table("settings").get("answers", policy)
        if stored is None:
            database.table("settings").add("answers", policy, value=ours)
        elif changes := "; ".join(differences(stored, ours)):
            raise OtherEvaluation(
                f"{database.file}: {policy} has answered benchmarks with other settings ({changes}): use the same "
                "settings, or another folder"
            )
        self._samples = {sample.key: sample for _, row in self._table.items(policy) for sample in [Sample(**row)]}

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
