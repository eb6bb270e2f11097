"""Benchmarks in a run's validation: the config's ``validation.benchmarks`` and whether it can be done, its questions as
rows of the dataset, and their answers judged and counted.

A row is one answer. verl puts a batch together column by column, so that a question has every column of a game, and a
game has ``sampling``. A question is launched under a key as games are, with a split of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from omegaconf import DictConfig, OmegaConf
from pydantic import Field

from ....players.prompts import Template, Tokenizer, general_template
from ....players.seats import Opponent, Seat
from ....players.seeds import GameKey
from ...graders.grading import Grader, check_installed
from ...graders.question import Question, check_lengths
from ...parsing import Count, Number, Section, Temperature, checked, parse
from .answers import Reply, Sample, sample_seed
from .benchmark_metrics import Score, judge
from .catalog import SAMPLING, BenchmarkName, get_benchmark
from .data import load

SETTING = "validation.benchmarks"
AGENT = "spiral_question"
#: The split of questions' keys.
SPLIT = "question"
#: Stands before the benchmark's id in a row's ``data_source``, so that no benchmark is taken for a game.
SOURCE = "benchmark/"
#: A game's ``sampling``: verl's is used.
_VERLS = {"seed": None, "temperature": None, "top_p": None, "max_tokens": None}


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


class ValidationBenchmarks:
    """The benchmarks of the config's ``validation.benchmarks``; ``extensions.Questions``."""

    def __init__(self, entries: Any, seed: int) -> None:
        self._seed = seed
        #: The entry, the question and the sample's number of each answer that every validation asks for.
        self.asked = [
            (entry, question, number)
            for entry in parse_entries(entries)
            for question in questions_of(entry)
            for number in range(entry.samples)
        ]

    def rows(self, games: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The rows of games, and after them one row for each answer; all with the same columns.

        ``key.index`` of a question's row is its place in ``asked``.
        """
        rows = [{**row, "sampling": dict(_VERLS)} for row in games]
        columns = dict.fromkeys(rows[0] if rows else ())
        return rows + [{**columns, **self._row(place, len(rows) + place)} for place in range(len(self.asked))]

    def _row(self, place: int, index: int) -> dict[str, Any]:
        entry, question, number = self.asked[place]
        return {
            "raw_prompt": question.prompt,
            "index": index,
            "agent_name": AGENT,
            "data_source": f"{SOURCE}{entry.id}",
            "prompt": {"template": entry.template or ""},
            "key": GameKey(SPLIT, self._seed, 0, place).to_dict(),
            **Seat(Opponent("", ""), (0,)).columns(),  # one session
            "sampling": {
                "seed": sample_seed(self._seed, question, number),
                "temperature": float(entry.temperature),
                "top_p": float(entry.top_p),
                "max_tokens": entry.max_tokens,
            },
        }

    def judge(self, answers: Mapping[GameKey, Mapping[str, Any]]) -> tuple[list[dict[str, Any]], dict[str, float]]:
        in_order = [Reply(**answers[key]) for key in sorted(answers)]
        samples = [
            Sample.of(question, number, sample_seed(self._seed, question, number), reply)
            for (_, question, number), reply in zip(self.asked, in_order, strict=True)
        ]
        with Grader() as grader:
            graded, scores = judge([question for _, question, _ in self.asked], samples, grader)
        return [{**asdict(sample), **asdict(verdict)} for sample, verdict in graded], benchmark_metrics(scores)


def benchmark_metrics(scores: Sequence[Score]) -> dict[str, float]:
    """``val-core/{benchmark}/...`` and ``val-aux/{benchmark}/...``.

    avg@k, pass@k, and for several samples maj@k are shares of the questions, whose number is ``count``; avg_low and
    avg_high are the 95 % interval over questions. truncated, no_answer, unreadable and not_graded (the grader took too
    long, or failed) are shares of the answers, whose number is ``answers``. tokens is an answer's mean length.
    """
    metrics: dict[str, float | None] = {}
    for row in scores:
        core, aux, k = f"val-core/{row.benchmark}", f"val-aux/{row.benchmark}", row.samples
        metrics |= {
            f"{core}/avg@{k}": row.avg.value,
            f"{core}/pass@{k}": row.pass_at[k].value,
            f"{core}/count": float(row.questions),
            f"{core}/truncated": row.truncated.value,
            f"{core}/answers": float(row.no_answer.count),
            f"{aux}/no_answer": row.no_answer.value,
            f"{aux}/unreadable": row.unreadable.value,
            f"{aux}/not_graded": row.time_outs.value + row.crashes.value,
            f"{aux}/tokens": row.tokens.value,
            **({f"{core}/maj@{k}": row.maj.value} if k > 1 else {}),
            f"{aux}/avg_low": row.avg.low,
            f"{aux}/avg_high": row.avg.high,
        }
    return {name: value for name, value in metrics.items() if value is not None}
