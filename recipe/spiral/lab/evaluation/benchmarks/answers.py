"""Answers to benchmarks' questions: what a model replies to a prompt, and which sample of which question that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ....players.player import PromptTooLong
from ....players.policy import Generate
from ....players.seeds import derive_seed
from ...graders.question import Question


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
    tokens: int
    truncated: bool

    @classmethod
    def of(cls, question: Question, number: int, seed: int, reply: Reply) -> Sample:
        return cls(question.benchmark, question.id, number, seed, question.digest, **asdict(reply))

    @property
    def key(self) -> tuple[str, str, int]:
        return self.benchmark, self.question, self.number


def sample_seed(seed: int, question: Question, number: int) -> int:
    """The seed of a question's ``number``-th sample in a run of that seed."""
    return derive_seed("benchmark", seed, question.benchmark, question.id, number)


async def reply_to(
    prompt_ids: list[int], generate: Generate, tokenizer: Any, sampling: Mapping[str, Any], prompt_length: int
) -> Reply:
    """An engine's reply.

    Raises:
        PromptTooLong: the prompt has more than ``prompt_length`` tokens; it is never cut.
    """
    if len(prompt_ids) > prompt_length:
        raise PromptTooLong(f"{len(prompt_ids)} tokens are more than the {prompt_length} that prompts may have")
    tokens, truncated = await generate(prompt_ids, sampling)
    text = str(tokenizer.decode(tokens.response_ids, skip_special_tokens=True))
    return Reply(text, len(tokens.response_ids), truncated)
