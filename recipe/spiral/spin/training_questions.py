"""Questions to train on, from files in the forms that verl's users have, in an order that the seed decides.

A row is verl's (``prompt`` of messages, ``reward_model.ground_truth``, ``data_source``, ``extra_info``), or plain: a
question and its answer, as in GSM8K's own files, where the answer stands behind ``####``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..lab.graders.question import SUFFIXES, Question, has_options, question_of, read_rows, text_of
from ..players.prompts import Template, Tokenizer, conversation_ids

#: Whom a question is answered to: the kind and the name of the other player of its record.
GRADER = "grader"
#: Stands before the answer in GSM8K's solutions; and an answer with commas between its thousands.
_ANSWER = "####"
_NUMBER = re.compile(r"[-+$]*\d+(,\d{3})+(\.\d+)?")


@dataclass(frozen=True)
class TrainingQuestion:
    """A question with its right answer.

    Attributes:
        data_set: its name in metrics and records: the end of ``data_source``, or the file's name.
        id: its own, or the row's number in its file.
        prompt: the conversation that is asked; or a question's text, which a template makes one of.
        answer: the right one, as text.
        data_source, ground_truth, extra_info: the row's, for functions that grade.
        choices: the options, of which ``answer`` is a letter.
    """

    data_set: str
    id: str
    prompt: str | list[dict[str, str]]
    answer: str
    data_source: str
    ground_truth: Any
    extra_info: dict[str, Any]
    choices: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """What is asked, for people and for the grader: of a conversation, the last message."""
        return self.prompt if isinstance(self.prompt, str) else self.prompt[-1]["content"]

    @property
    def one_answer(self) -> bool:
        """Whether the row says one right answer: not several, of which it is open whether one or all are asked for."""
        truth = self.ground_truth
        return not isinstance(truth, Mapping) and (not isinstance(truth, list | tuple) or len(truth) == 1)

    @property
    def question(self) -> Question:
        """What the benchmarks' grader takes."""
        return Question(self.data_set, self.id, self.text, self.answer, tuple(self.choices))

    def to_json(self) -> str:
        return json.dumps(asdict(self), ensure_ascii=False, default=str)

    @classmethod
    def from_json(cls, text: str) -> TrainingQuestion:
        return cls(**json.loads(text))

    def encode(self, tokenizer: Tokenizer, template: Template, **chat_template_kwargs: Any) -> list[int]:
        """The prompt's token ids. A row's own conversation goes without ``template``."""
        if isinstance(self.prompt, str):
            return template.encode(tokenizer, self.prompt, **chat_template_kwargs)
        return conversation_ids(tokenizer, self.prompt, chat_template_kwargs)


def load_questions(files: str | Iterable[str], setting: str) -> list[TrainingQuestion]:
    """The questions of one file or several, in their order.

    Args:
        files: parquet, jsonl, json or csv.
        setting: whose value they are, for messages.

    Raises:
        ValueError: a file is not there, cannot be read or is empty; or a row has no question or no answer. The message
            names the file and the row.
    """
    paths = [Path(file).expanduser() for file in ([files] if isinstance(files, str) else files)]
    questions = []
    for path in paths:
        if not path.is_file() or path.suffix not in SUFFIXES:
            raise ValueError(
                f"{setting}={path}: there is no such file of questions ({', '.join(SUFFIXES)}); docs/spin.md says how "
                "verl makes those of GSM8K"
            )
        for number, row in enumerate(read_rows(path)):
            try:
                questions.append(read_question(row, path.stem, number))
            except ValueError as error:
                raise ValueError(f"{setting}: {path}, row {number} (from 0): {error}") from error
    if not questions:
        raise ValueError(f"{setting}={', '.join(map(str, paths))}: holds no questions")
    return questions


def read_question(row: Mapping[str, Any], file: str, number: int) -> TrainingQuestion:
    """The question of the ``number``-th row (from 0) of a file, whose name is given without its suffix.

    Raises:
        ValueError: it has no question, or no answer, or one that is no text.
    """
    source = text_of(row.get("data_source")) or file
    extra = row.get("extra_info") or {}
    if not isinstance(extra, Mapping):
        raise ValueError("extra_info must be a mapping")
    name = source.rstrip("/").rsplit("/", 1)[-1] or file
    graded = row.get("reward_model")
    truth = graded.get("ground_truth") if isinstance(graded, Mapping) else None
    truth = truth.decode() if isinstance(truth, bytes) else truth
    prompt: str | list[dict[str, str]]
    choices: list[str] = []
    if isinstance(row.get("prompt"), list | tuple):
        value = truth[0] if isinstance(truth, list | tuple) and len(truth) == 1 else truth
        if (answer := text_of(value)) is None:
            raise ValueError("a row with a prompt of messages must have an answer in reward_model.ground_truth")
        prompt, id_ = _messages(row["prompt"]), text_of(extra.get("index")) or str(number)
        if has_options(row):
            plain = question_of(name, {**row, "question": prompt[-1]["content"], "answer": answer}, number, choice=True)
            answer, choices = plain.answer, list(plain.choices)
    else:
        given = {} if truth is None else {"answer": str(truth) if isinstance(truth, Mapping) else truth}
        plain = question_of(name, {**row, **given}, number, has_options(row))
        prompt, id_, choices = plain.prompt, plain.id, list(plain.choices)
        answer = plain.answer if choices else _final(plain.answer)
        truth = answer if truth is None else truth
    question = TrainingQuestion(name, id_, prompt, answer, source, truth, dict(extra), choices)
    question.to_json().encode()  # half a surrogate pair, as JSON may have one, is nothing that a tokenizer takes
    return question


def _final(answer: str) -> str:
    """What stands behind the mark, if there is one; a number without commas."""
    if _ANSWER not in answer:
        return answer
    final = answer.rsplit(_ANSWER, 1)[1].strip()
    if not final:
        raise ValueError(f"nothing stands behind {_ANSWER}")
    return final.replace(",", "") if _NUMBER.fullmatch(final) else final


def _messages(prompt: Sequence[Any]) -> list[dict[str, str]]:
    messages = [dict(said) if isinstance(said, Mapping) else {} for said in prompt]
    if not all(isinstance(said.get(part), str) for said in messages for part in ("role", "content")):
        raise ValueError("each message of a prompt must have a role and a content, both texts")
    if not messages or not messages[-1]["content"].strip():
        raise ValueError("a prompt must end with a message that says something")
    return [{"role": said["role"], "content": said["content"]} for said in messages]
