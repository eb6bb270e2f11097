"""Which questions a run's validation asks, and how: the config's ``validation.benchmarks``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...play.prompts import Template, get_template
from .catalog import SAMPLING, get_benchmark
from .data import NoData, load
from .questions import Question
from .run import sample_seed

SETTING = "validation.benchmarks"


@dataclass(frozen=True)
class Entry:
    """A benchmark in validation.

    Attributes:
        id: the benchmark's.
        path: a folder of questions, or a file; None: the hub.
        limit: so many of its questions; None: all.
        samples: answers to each.
        template: its prompts' template; None: that of all prompts. Its twin for questions is taken.
        temperature, top_p: SPIRAL's, unless told otherwise.
        max_tokens: the longest answer; None: the longest response.
    """

    id: str
    path: str | None = None
    limit: int | None = None
    samples: int = 1
    template: str | None = None
    temperature: float = SAMPLING["temperature"]
    top_p: float = SAMPLING["top_p"]
    max_tokens: int | None = None

    @classmethod
    def parse(cls, entry: Any) -> Entry:
        """From a config entry: an id, or a mapping with ``id`` and any of the others.

        Raises:
            ValueError: something is wrong there.
        """
        if isinstance(entry, str):
            entry = {"id": entry}
        known = [field.name for field in fields(cls)]
        if not isinstance(entry, Mapping) or "id" not in entry:
            raise ValueError(f"{SETTING}: {entry!r} is no benchmark: give an id, or {{id: math500, path: ...}}")
        if unknown := sorted(set(map(str, entry)) - {*known}):
            raise ValueError(f"{SETTING}: {', '.join(unknown)}: unknown; an entry may have {', '.join(known)}")
        made = cls(**{**{str(key): value for key, value in entry.items()}, "id": get_benchmark(str(entry["id"])).id})
        if made.template is not None:
            general_template(made.template)
        for name, value in (("samples", made.samples), ("limit", made.limit), ("max_tokens", made.max_tokens)):
            made._must(name, value, (value is None and name != "samples") or _whole(value), "a whole number from 1 up")
        made._must("temperature", made.temperature, _number(made.temperature) and made.temperature >= 0, "0 or more")
        made._must("top_p", made.top_p, _number(made.top_p) and 0 < made.top_p <= 1, "above 0 and at most 1")
        return made

    def _must(self, name: str, value: object, condition: bool, what: str) -> None:
        if not condition:
            raise ValueError(f"{SETTING}: {self.id} has {name}={value}: must be {what}")


@dataclass(frozen=True)
class Asked:
    """One answer that is wanted: which sample (from 0) of which question, and the seed that it is sampled with."""

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
    parsed = [Entry.parse(entry) for entry in entries]
    ids = [entry.id for entry in parsed]
    if twice := sorted({name for name in ids if ids.count(name) > 1}):
        raise ValueError(f"{SETTING}: {', '.join(twice)} is there twice; use samples for more answers")
    return parsed


def questions_of(entry: Entry) -> list[Question]:
    """An entry's questions.

    Raises:
        ValueError: there are none to be had; the message says what to put where.
        ImportError: a package is missing; the message names the extra.
    """
    try:
        return load(entry.id, entry.path, entry.limit)
    except (NoData, ValueError) as error:
        # a benchmark's settings have their names from an evaluation of its own
        raise ValueError(f"{SETTING}: {entry.id}: {str(error).replace('benchmarks.', '')}") from error


def to_ask(entries: Sequence[Entry], seed: int) -> list[Asked]:
    """All answers that are wanted: benchmark by benchmark, question by question; the same at every validation.

    Raises:
        ValueError, ImportError: as ``questions_of``.
    """
    return [
        Asked(entry, question, number, sample_seed(seed, question, number))
        for entry in entries
        for question in questions_of(entry)
        for number in range(entry.samples)
    ]


def general_template(name: str) -> Template:
    """The template for questions that belongs to a template: "qwen3" -> "qwen3_general".

    Raises:
        ValueError: there is no such template.
    """
    return get_template(name if name.endswith("_general") else f"{name}_general")


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
