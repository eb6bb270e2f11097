"""Questions with right answers, from files whose rows have the forms of the paper's eight benchmarks, of GSM8K, or
alike."""

from __future__ import annotations

import ast
import csv
import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from ...players.prompts import last_box
from ...players.seeds import derive_seed

SUFFIXES = (".jsonl", ".json", ".parquet", ".csv")
_QUESTION = ("question", "problem", "prompt")
_ANSWER = ("answer", "final_answer", "ground_truth")
_ID = ("id", "unique_id", "question_id", "record_id")
#: Fields that say that there are options. Where they have another form the row is refused: a letter alone says nothing.
_LIKE_OPTIONS = re.compile("option|choice|alternative|candidate|distractor|incorrect_answer|^[a-d]$")


@dataclass(frozen=True)
class Question:
    """A question with its right answer.

    Attributes:
        benchmark: the benchmark's id.
        id: unique within the benchmark.
        text: the question without options.
        answer: the right answer: LaTeX, or the letter of an option.
        choices: the options' texts, in the order of their letters; () for mathematics.
    """

    benchmark: str
    id: str
    text: str
    answer: str
    choices: tuple[str, ...] = ()

    @property
    def prompt(self) -> str:
        """The question as a template shows it: with the options, and what to answer."""
        if not self.choices:
            return self.text
        options = "\n".join(f"({letter}) {text}" for letter, text in zip(ascii_uppercase, self.choices, strict=False))
        return f"{self.text}\n\n{options}\n\nThe answer is the letter of one option."

    @property
    def digest(self) -> str:
        """A hash of the question and its right answer."""
        content = ["choice" if self.choices else "math", self.text, self.answer, self.choices]
        return hashlib.blake2b(json.dumps(content, ensure_ascii=False).encode(), digest_size=8).hexdigest()


def read_rows(file: Path) -> list[Mapping[str, Any]]:
    """The rows of a file, by how its name ends. Raises ValueError: it cannot be read."""
    try:
        if file.suffix == ".parquet":
            from pyarrow import parquet

            rows = parquet.read_table(file).to_pylist()
        else:
            with file.open(encoding="utf-8-sig", newline="") as text:
                if file.suffix == ".csv":
                    rows = list(csv.DictReader(text))
                elif file.suffix == ".jsonl":
                    rows = [_parsed(line, number) for number, line in enumerate(text, start=1) if line.strip()]
                else:
                    rows = json.load(text)
    except (ValueError, OSError, csv.Error) as error:
        raise ValueError(f"{file}: cannot be read: {error}") from error
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise ValueError(f"{file}: must be a list of rows with fields")
    return rows


def _parsed(line: str, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise ValueError(f"line {number} of the file: {error}") from error


def question_of(benchmark: str, row: Mapping[str, Any], number: int, choice: bool) -> Question:
    """The question of a row, whose ``number`` in the file, from 0, is the question's id if it has none.

    Without options the answer is LaTeX, or the last box of a solution. Options are a list, or a correct and several
    incorrect answers (GPQA), which are shuffled with a seed from the question's text: the right letter tells nothing,
    and is the same in every run.

    Args:
        choice: whether it must have options.

    Raises:
        ValueError: a field is missing or no text, or the fields do not say which option is right.
    """
    fields = _fields(row)
    text = _text(_first(fields, _QUESTION), "question")
    if text is None:
        raise ValueError(
            f"a row must have one of {', '.join(_QUESTION)}; this one has {', '.join(fields) or 'nothing'}"
        )
    if context := text_of(fields.get("context")):  # OlympiadBench
        text = f"{context}\n{text}"
    name = next(filter(None, (text_of(fields.get(field)) for field in _ID)), str(number))
    if choice:
        options = _first(fields, ("options", "choices"))
        choices, right = _shuffled(fields, text) if options is None else _listed(fields, options)
        return Question(benchmark, name, text, ascii_uppercase[right], tuple(choices))
    said = _first(fields, _ANSWER)
    # OlympiadBench: several answers form a set
    answers = [_text(answer, "answer") for answer in _list(said) or [said]]
    answer = ", ".join(_bare(answer) for answer in answers if answer) or last_box(text_of(fields.get("solution")) or "")
    if not answer:
        raise ValueError(
            f"a row must have one of {', '.join(_ANSWER)}, or a boxed solution; this one has {', '.join(fields)}"
        )
    return Question(benchmark, name, text, answer)


def has_options(row: Mapping[str, Any]) -> bool:
    """Whether a row is a choice: it has options or incorrect answers, in whatever form."""
    return any(_LIKE_OPTIONS.search(name) and value for name, value in _fields(row).items())


def text_of(value: Any) -> str | None:
    """A value as stripped text, whole numbers without a decimal point; None if there is no text.

    Raises:
        ValueError: the value is bytes that are no UTF-8.
    """
    if isinstance(value, bytes):
        value = value.decode()
    if value is None or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None


def _listed(fields: Mapping[str, Any], options: Any) -> tuple[list[str], int]:
    """A list of options, and the place of the right one."""
    choices = [_text(option, "options") or "" for option in _list(options) or ()]
    while choices and choices[-1] in ("", "N/A"):  # some versions of MMLU-Pro fill the list up to ten
        choices.pop()
    said = {name: answer for name in ("answer_index", "answer") if (answer := text_of(fields.get(name)))}
    named = {_named(answer, choices) for answer in said.values()}
    right = named.pop() if len(named) == 1 else None
    if right is None or right >= min(len(choices), len(ascii_uppercase)):
        raise ValueError(f"which of {len(choices)} options is right does not follow from {said or 'any answer'}")
    return choices, right


def _named(answer: str, choices: Sequence[str]) -> int | None:
    """The option that an answer names by its text, its letter, or its index from 0."""
    if choices.count(answer) == 1 and answer not in ascii_uppercase:
        return choices.index(answer)
    letter = answer.strip("(). ").upper()
    if len(letter) == 1 and letter in ascii_uppercase:
        return ascii_uppercase.index(letter)
    return int(answer) if answer.isdecimal() else None


def _shuffled(fields: Mapping[str, Any], text: str) -> tuple[list[str], int]:
    correct = text_of(fields.get("correct_answer"))
    incorrect = [text_of(value) for name, value in fields.items() if name.startswith("incorrect_answer")]
    if correct is None or not incorrect or correct in incorrect:
        raise ValueError(
            "a row must have options (a list) with answer or answer_index, or Correct Answer with Incorrect Answer 1, "
            f"2, ..., which differ from it; this one has {', '.join(fields)}"
        )
    # Sorted first, so that it does not matter which field holds which incorrect answer.
    choices = sorted([correct, *filter(None, incorrect)])
    random.Random(derive_seed("choices", text)).shuffle(choices)
    return choices, choices.index(correct)


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name).strip().lower().replace(" ", "_"): value for name, value in row.items()}


def _first(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _text(value: Any, what: str) -> str | None:
    if isinstance(value, Mapping | list | tuple):
        raise ValueError(f"a row's {what} must be text, not {type(value).__name__}")
    return text_of(value)


def _bare(answer: str) -> str:
    """An answer without a box or dollar signs around all of it."""
    if answer.startswith("\\boxed") and (box := last_box(answer)):
        return box.strip()
    dollars = answer.startswith("$") and answer.endswith("$") and answer.count("$") == 2
    return answer[1:-1].strip() if dollars else answer


def _list(value: Any) -> list[Any] | None:
    """A list, also from a table's text cell; None if it is no list (an interval, a matrix, plain text)."""
    if isinstance(value, str) and value.strip().startswith(("['", '["')):
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value.strip())
    return list(value) if isinstance(value, list | tuple) else None
