"""Answers to benchmarks' questions: which sample of which question each is."""

from __future__ import annotations

from dataclasses import dataclass


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

    @property
    def key(self) -> tuple[str, str, int]:
        return self.benchmark, self.question, self.number
