"""A benchmark's question, and how it is read from a row of a data set, whatever the fields are called."""

from __future__ import annotations

import ast
import hashlib
import json
import random
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any, Literal

from omegaconf import DictConfig
from tqdm import tqdm

from ...players.prompts import last_box
from ...players.seeds import derive_seed

Kind = Literal["math", "choice"]

_QUESTION = ("question", "problem", "prompt")
_ANSWER = ("answer", "final_answer", "expected_answer", "ground_truth")
_ID = ("id", "unique_id", "question_id", "record_id", "problem_idx")
_CHOICES = ("options", "choices")
#: A field that is one option; the incorrect answers; and fields that say that there are options, whatever their form.
_OPTION = re.compile(r"(?:option|choice)s?_?([a-z]|\d+)|([a-d])")
_WRONG = ("incorrect_answer", "distractor")
_LIKE_OPTIONS = re.compile("option|choice|endings|candidate|alternative|possible_answer|" + "|".join(_WRONG))
_INDEX = ("answer_index", "answer_idx", "label")
_LETTER = ("answer", "answerkey")


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
    text, answer = _question(row, fields), _math_answer(fields)
    if not answer:
        raise _missing("answer, final_answer or a boxed solution", row)
    return Question(benchmark, _id(fields, number), "math", text, answer)


def has_options(row: Mapping[str, Any]) -> bool:
    """Whether a row is a choice: it has options or incorrect answers, in whatever form."""
    fields = _fields(row)
    said = [value for name, value in fields.items() if _LIKE_OPTIONS.search(name)]
    return _options(fields) is not None or any(isinstance(value, str | list | Mapping) and value for value in said)


def choice_question(benchmark: str, row: Mapping[str, Any], number: int) -> Question:
    """The question of a row with ordered options, or with a correct and several incorrect answers (GPQA).

    The latter are shuffled with a seed from the question's text, so the right letter tells nothing and is the same in
    every run.

    Raises:
        ValueError: a field is missing, the question is no text, or the fields do not say which option is right.
    """
    fields = _fields(row)
    text, options = _question(row, fields), _options(fields)
    choices, right = _shuffled(fields, text) if options is None else _ordered(fields, options)
    if len(choices) > len(ascii_uppercase):
        raise ValueError(f"{len(choices)} options: at most {len(ascii_uppercase)} have letters")
    return Question(benchmark, _id(fields, number), "choice", text, ascii_uppercase[right], tuple(choices))


def _math_answer(fields: Mapping[str, Any]) -> str | None:
    for name in _ANSWER:
        answers = _list(fields.get(name))
        if answers is not None:  # OlympiadBench: several answers form a set
            joined = ", ".join(filter(None, map(_unwrapped, answers)))
            if joined:
                return joined
        elif (answer := _unwrapped(fields.get(name))) is not None:
            return answer
    solution = text_of(fields.get("solution"))
    return last_box(solution) if solution else None


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
    names = sorted(name for name in fields if name.startswith(_WRONG))
    incorrect = [answer for answer in map(text_of, map(fields.get, names)) if answer is not None]
    if correct is None or not incorrect:
        wanted = "options (a list) with answer or answer_index, or Correct Answer with Incorrect Answer 1, 2, ..."
        raise _missing(wanted, fields)
    if correct in incorrect:
        raise ValueError(f"the correct answer {correct!r} is also among the incorrect ones")
    # Sorted first, so that it does not matter which field holds which incorrect answer.
    choices = sorted([correct, *incorrect])
    random.Random(derive_seed("choices", text)).shuffle(choices)
    return choices, choices.index(correct)


def _ordered(fields: Mapping[str, Any], options: Mapping[str, Any]) -> tuple[list[str], int]:
    choices = [text_of(option) or "" for option in options.values()]
    while choices and choices[-1] in ("", "N/A"):  # some versions of MMLU-Pro fill the list up to ten
        choices.pop()
    right = _right(fields, choices, list(options))
    if right is None or not 0 <= right < len(choices):
        shown = {name: fields[name] for name in (*_LETTER, *_INDEX) if name in fields}
        has = shown or f"the fields {', '.join(fields)}"
        raise ValueError(f"which of {len(choices)} options is right does not follow from {has}")
    return choices, right


def _right(fields: Mapping[str, Any], choices: Sequence[str], labels: Sequence[str]) -> int | None:
    index, answer = text_of(_raw(fields, _INDEX)), text_of(_raw(fields, _LETTER))
    named = _named(answer, choices, labels)
    if index is None or not index.isdecimal():
        return _named(index, choices, labels) if named is None else named
    if named is not None and named != int(index):
        raise ValueError(f"answer {answer!r} is not the option of answer_index {index} (from 0)")
    return int(index)


def _named(answer: str | None, choices: Sequence[str], labels: Sequence[str]) -> int | None:
    """The option that an answer names by its text, by its letter or the row's own label, or by its index from 0."""
    if answer is None:
        return None
    if choices.count(answer) == 1 and answer not in labels:
        return choices.index(answer)
    letter = answer.strip("(). ").upper()
    if letter in labels:
        return labels.index(letter)
    return int(answer) if answer.isdecimal() else None


def _fields(row: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name).strip().lower().replace(" ", "_").replace("-", "_"): value for name, value in row.items()}


def _missing(wanted: str, row: Mapping[str, Any]) -> ValueError:
    return ValueError(f"a row must have {wanted}; this one has {', '.join(map(str, row)) or 'nothing'}")


def _question(row: Mapping[str, Any], fields: Mapping[str, Any]) -> str:
    if (text := _asked(fields, _QUESTION)) is None:
        raise _missing(f"one of {', '.join(_QUESTION)}", row)
    context = _asked(fields, ["context"])
    return text if context is None else f"{context}\n{text}"


def _asked(fields: Mapping[str, Any], names: Sequence[str]) -> str | None:
    """The first of these fields that has a text.

    Raises:
        ValueError: a field before it holds a list or a mapping, which nobody means to ask as it is written.
    """
    for name in names:
        if isinstance(value := fields.get(name), Mapping | list | tuple):
            raise ValueError(f"{name} must be a text, not a {'mapping' if isinstance(value, Mapping) else 'list'}")
        if (text := text_of(value)) is not None:
            return text
    return None


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


def _options(fields: Mapping[str, Any]) -> dict[str, Any] | None:
    """Options by their labels: letters, or the row's own, as in {"label": [...], "text": [...]}; None: it has none."""
    labels: Sequence[str] = ascii_uppercase
    if (value := _raw(fields, _CHOICES)) is None:
        single = [match for match in map(_OPTION.fullmatch, fields) if match and text_of(fields[match[0]]) is not None]
        value = {match[1] or match[2]: fields[match[0]] for match in single}
        if len(value) < (4 if any(match[2] for match in single) else 2):  # a and b alone may be anything
            value = None
    if isinstance(value, Mapping) and "text" in value:
        labels, value = value.get("label") or labels, value["text"]
    elif isinstance(value, Mapping):
        labels, value = list(value), list(value.values())
    options = _list(value)
    if not options or len(labels) < len(options) or any(isinstance(option, Mapping | list) for option in options):
        return None
    return {str(label).strip().upper(): option for label, option in zip(labels, options, strict=False)}


def _list(value: Any) -> list[Any] | None:
    """A list, also from a table's text cell; None if it is no list."""
    if isinstance(value, str):
        value = _written_list(value)
    if value is not None and not isinstance(value, str | bytes | Mapping) and hasattr(value, "__len__"):
        return list(value)
    return None


def _written_list(cell: str) -> Any:
    if not (cell.strip().startswith(("['", '["')) and cell.strip().endswith("]")):
        return None  # an interval, a matrix, plain text
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, SyntaxError):
            return read(cell.strip())
    return None


def check_lengths(config: DictConfig, setting: str, template: str, prompts: Iterable[tuple[str, list[int]]]) -> None:
    """See that questions' prompts, (id, token ids), can be made, and that none is too long: a ValueError names the
    ``setting`` of the questions, and that of the ``template`` as it is written, and says what to do."""
    limit = config.data.max_prompt_length
    shown = tqdm(prompts, f"lengths of {setting}", delay=5, leave=False, disable=not sys.stderr.isatty())
    try:
        long = [f"question {name} with {len(ids)} tokens" for name, ids in shown if len(ids) > limit]
    except ValueError as error:
        model = config.actor_rollout_ref.model.path
        raise ValueError(f"{setting}: {template} does not go with {model}: {error}") from error
    if long:
        raise ValueError(
            f"data.max_prompt_length={limit}: {len(long)} questions of {setting} have longer prompts with this "
            f"tokenizer, and prompts are never cut, the first: {long[0]}; raise it, or leave them out"
        )
