"""The config's ``validation.benchmarks``: which questions a run's validation asks, and how."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, Field, field_validator

from ...players.prompts import general_template
from ...questions.question import Question
from ..parsing import Count, Number, Section, Temperature, parse
from .answers import sample_seed
from .catalog import SAMPLING, get_benchmark
from .data import NoData, load

SETTING = "validation.benchmarks"


class Entry(Section):
    """A benchmark in validation.

    Attributes:
        id: the benchmark's.
        path: a folder of questions, or a file; None: the hub.
        limit: how many of its questions are asked; None: all.
        samples: answers to each.
        template: its prompts' template; None: that of all prompts. The template's form for questions is used.
        temperature, top_p: SPIRAL's, unless they are given.
        max_tokens: the longest answer; None: the longest response.
    """

    id: Annotated[str, AfterValidator(lambda name: get_benchmark(name).id)]
    path: str | None = None
    limit: Count | None = None
    samples: Count = 1
    template: str | None = None
    temperature: Temperature = SAMPLING["temperature"]
    top_p: Annotated[Number, Field(gt=0, le=1)] = SAMPLING["top_p"]
    max_tokens: Count | None = None

    @field_validator("template")
    @classmethod
    def _known(cls, template: str | None) -> str | None:
        if template is not None:
            general_template(template)
        return template


@dataclass(frozen=True)
class AnswerRequest:
    """An answer that is wanted: the ``number``-th sample (from 0) of a question, sampled with ``seed``."""

    entry: Entry
    question: Question
    number: int
    seed: int


def parse_entries(entries: Any) -> list[Entry]:
    """The config's ``validation.benchmarks``.

    Raises:
        ValueError: it is no list, names a benchmark twice, or holds a bad entry.
    """
    if isinstance(entries, str | Mapping) or not isinstance(entries, Iterable):
        raise ValueError(f"{SETTING}={entries!r}: must be a list: {SETTING}=[{{id: math500, path: ...}}]")
    parsed = [
        parse(Entry, {"id": entry} if isinstance(entry, str) else entry, f"{SETTING}.{place}")
        for place, entry in enumerate(entries)
    ]
    ids = [entry.id for entry in parsed]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"{SETTING}: {', '.join(twice)} is there twice; use samples for more answers")
    return parsed


def questions_of(entry: Entry) -> list[Question]:
    """An entry's questions.

    Raises:
        ValueError: there are none; the message says which file to put where.
        ImportError: a package is missing; the message names the extra.
    """
    try:
        return load(entry.id, entry.path, entry.limit)
    except (NoData, ValueError) as error:
        # Its messages name the settings of an evaluation.
        raise ValueError(f"{SETTING}: {entry.id}: {str(error).replace('benchmarks.', '')}") from error


def requests_of(entries: Sequence[Entry], seed: int) -> list[AnswerRequest]:
    """All answers that are wanted: benchmark by benchmark, question by question; the same at every validation.

    Raises:
        ValueError, ImportError: as ``questions_of``.
    """
    return [
        AnswerRequest(entry, question, number, sample_seed(seed, question, number))
        for entry in entries
        for question in questions_of(entry)
        for number in range(entry.samples)
    ]
