"""A question with its right answer, read from a row of the paper's eight benchmarks, of GSM8K, or alike."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

from ...players.prompts import last_box
from ...players.seeds import derive_seed

Kind = Literal["math", "choice"]

_QUESTION = ("question", "problem", "prompt")
_ANSWER = ("answer", "final_answer", "ground_truth")
_ID = ("id", "unique_id", "question_id", "record_id")
_OPTIONS = ("options", "choices")
_RIGHT = ("answer_index", "answer", "answerkey")
#: Fields that say that there are options. Where they have another form the row is refused: a letter alone says nothing.
_LIKE_OPTIONS = re.compile("option|choice|alternative|candidate|distractor|incorrect_answer|^[a-d]$")


@dataclass(frozen=True)
class Question:
    """A question with its right answer.

    Attributes:
        benchmark: the benchmark's id.
        id: unique within the benchmark.
        text: the question without options.
        answer: the right answer: LaTeX for math, a letter for a choice.
        choices: the options' texts, in the order of their letters; () for math.
    """

    benchmark: str
    id: str
    kind: Kind
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
        content = json.dumps([self.kind, self.text, self.answer, self.choices], ensure_ascii=False)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()


def math_question(benchmark: str, row: Mapping[str, Any], number: int) -> Question:
    """The question of a row with an answer in LaTeX, or with a solution whose last box holds the answer.

    Raises:
        ValueError: a field is missing or empty, or the question is no text.
    """
    fields = _fields(row)
    text, answer = _question(fields), _raw(fields, _ANSWER)
    # OlympiadBench: several answers form a set
    right = ", ".join(filter(None, map(_unwrapped, answers if (answers := _list(answer)) else [answer])))
    right = right or (last_box(text_of(fields.get("solution")) or "") or "")
    if not right:
        raise _missing("answer, final_answer or a boxed solution", fields)
    return Question(benchmark, _id(fields, number), "math", text, right)


def has_options(row: Mapping[str, Any]) -> bool:
    """Whether a row is a choice: it has options or incorrect answers, in whatever form."""
    return any(_LIKE_OPTIONS.search(name) and value for name, value in _fields(row).items())


def choice_question(benchmark: str, row: Mapping[str, Any], number: int) -> Question:
    """The question of a row with ordered options, or with a correct and several incorrect answers (GPQA).

    The latter are shuffled with a seed from the question's text, so the right letter tells nothing and is the same in
    every run.

    Raises:
        ValueError: a field is missing, the question is no text, or the fields do not say which option is right.
    """
    fields = _fields(row)
    text, options = _question(fields), _raw(fields, _OPTIONS)
    choices, right = _shuffled(fields, text) if options is None else _ordered(fields, options)
    if len(choices) > len(ascii_uppercase):
        raise ValueError(f"{len(choices)} options: at most {len(ascii_uppercase)} have letters")
    return Question(benchmark, _id(fields, number), "choice", text, ascii_uppercase[right], tuple(choices))


def _unwrapped(value: Any) -> str | None:
    """The text of an answer without dollar signs or a box around all of it; None if there is no text."""
    text = text_of(value)
    if text is None:
        return None
    if (box := last_box(text)) is not None and text.startswith("\\boxed"):
        return box.strip()
    if text.startswith("$") and text.endswith("$") and text.count("$") == 2:
        return text[1:-1].strip()
    return text


def _shuffled(fields: Mapping[str, Any], text: str) -> tuple[list[str], int]:
    correct = text_of(fields.get("correct_answer"))
    incorrect = [text_of(value) for name, value in fields.items() if name.startswith("incorrect_answer")]
    if correct is None or not incorrect:
        wanted = "options (a list) with answer or answer_index, or Correct Answer with Incorrect Answer 1, 2, ..."
        raise _missing(wanted, fields)
    if correct in incorrect:
        raise ValueError(f"the correct answer {correct!r} is also among the incorrect ones")
    # Sorted first, so that it does not matter which field holds which incorrect answer.
    choices = sorted([correct, *filter(None, incorrect)])
    random.Random(derive_seed("choices", text)).shuffle(choices)
    return choices, choices.index(correct)


def _ordered(fields: Mapping[str, Any], options: Any) -> tuple[list[str], int]:
    labels: Sequence[str] = ascii_uppercase
    if isinstance(options, Mapping) and "text" in options:  # ARC: {"label": [...], "text": [...]}
        labels, options = [str(label).upper() for label in options.get("label") or labels], options["text"]
    listed = _list(options)
    if not listed or any(isinstance(option, Mapping | list) for option in listed):
        raise _missing("options (a list)", fields)
    choices = [text_of(option) or "" for option in listed]
    while choices and choices[-1] in ("", "N/A"):  # some versions of MMLU-Pro fill the list up to ten
        choices.pop()
    named = {_named(said, choices, labels) for name in _RIGHT if (said := text_of(fields.get(name))) is not None}
    right = named.pop() if len(named) == 1 else None
    if right is None or right >= len(choices):
        shown = {name: fields[name] for name in _RIGHT if name in fields}
        raise ValueError(f"which of {len(choices)} options is right does not follow from {shown or 'any answer'}")
    return choices, right


def _named(answer: str, choices: Sequence[str], labels: Sequence[str]) -> int | None:
    """The option that an answer names by its text, its letter or the row's own label, or its index from 0."""
    if choices.count(answer) == 1 and answer not in labels:
        return choices.index(answer)
    if (letter := answer.strip("(). ").upper()) in labels:
        return labels.index(letter)
    return int(answer) if answer.isdecimal() else None


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name).strip().lower().replace(" ", "_"): value for name, value in row.items()}


def _missing(wanted: str, row: Mapping[str, Any]) -> ValueError:
    return ValueError(f"a row must have {wanted}; this one has {', '.join(map(str, row)) or 'nothing'}")


def _question(fields: Mapping[str, Any]) -> str:
    text = _raw(fields, _QUESTION)
    if isinstance(text, Mapping | list | tuple):
        raise ValueError("a row's question must be a text")
    if (asked := text_of(text)) is None:
        raise _missing(f"one of {', '.join(_QUESTION)}", fields)
    context = text_of(fields.get("context"))  # OlympiadBench
    return asked if context is None else f"{context}\n{asked}"


def answer_fields(row: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """A row's answer where it has fields of its own, as TriviaQA's has aliases; None: it has none."""
    answer = _raw(_fields(row), _ANSWER)
    return answer if isinstance(answer, Mapping) else None


def _raw(fields: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _id(fields: Mapping[str, Any], number: int) -> str:
    return next(filter(None, map(text_of, map(fields.get, _ID))), str(number))


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


def _list(value: Any) -> list[Any] | None:
    """A list, also from a table's text cell; None if it is no list (an interval, a matrix, plain text)."""
    if isinstance(value, str) and value.strip().startswith(("['", '["')):
        for read in (json.loads, ast.literal_eval):
            with suppress(ValueError, SyntaxError):
                value = read(value)
                break
    return list(value) if isinstance(value, list | tuple) else None
