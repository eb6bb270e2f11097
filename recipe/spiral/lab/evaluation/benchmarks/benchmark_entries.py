"""The config's ``validation.benchmarks``: which questions a run's validation asks, how, and whether it can."""

from __future__ import annotations

from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from ....players.prompts import Template, Tokenizer, general_template
from ...graders.grading import check_installed
from ...graders.question import Question, check_lengths
from ...parsing import Count, Number, Section, Temperature, checked, parse
from .catalog import SAMPLING, BenchmarkName, get_benchmark
from .data import load

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

    id: BenchmarkName
    path: str | None = None
    limit: Count | None = None
    samples: Count = 1
    template: Annotated[str, checked(general_template)] | None = None
    temperature: Temperature = SAMPLING["temperature"]
    top_p: Annotated[Number, Field(gt=0, le=1)] = SAMPLING["top_p"]
    max_tokens: Count | None = None


def parse_entries(entries: Any) -> list[Entry]:
    """The config's ``validation.benchmarks``.

    Raises:
        ValueError: it names a benchmark twice, or holds a bad entry.
    """
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
    """
    try:
        return load(entry.id, entry.path, entry.limit)
    except ValueError as error:
        # Its messages name the settings of an evaluation.
        raise ValueError(f"{SETTING}: {entry.id}: {str(error).replace('benchmarks.', '')}") from error


def check_entries(config: DictConfig) -> None:
    """See that the questions are there and can be judged.

    Raises:
        ValueError, ImportError: they cannot; the message names the setting and what to do.
    """
    entries = parse_entries(config.validation.benchmarks)
    longest = config.data.max_response_length
    for entry in entries:
        if entry.max_tokens is not None and entry.max_tokens > longest:
            raise ValueError(
                f"{SETTING}: {entry.id} has max_tokens={entry.max_tokens}: more than "
                f"data.max_response_length={longest}; lower it, or raise that"
            )
        _template(entry, config)
    if any(get_benchmark(entry.id).kind == "math" for entry in entries):
        check_installed(SETTING)
    for entry in entries:
        questions_of(entry)


def check_prompts(config: DictConfig, tokenizer: Tokenizer) -> None:
    """Check the prompts of every entry's questions. Raises: as ``check_lengths``."""
    kwargs: Any = OmegaConf.to_container(config.data.apply_chat_template_kwargs, resolve=True)
    for entry in parse_entries(config.validation.benchmarks):
        template, questions = _template(entry, config), questions_of(entry)
        prompts = ((question.id, template.encode(tokenizer, question.prompt, **kwargs)) for question in questions)
        check_lengths(config, f"{SETTING}: {entry.id}", f"template={template.name}", prompts)


def _template(entry: Entry, config: DictConfig) -> Template:
    return general_template(str(entry.template or config.prompt.template))
