"""What an endpoint sent, read with suspicion: every field may be missing, null or of another type."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..base import Usage
from .settings import ApiSettings


class BadAnswer(Exception):
    """What came is no answer; the message says in a few words why, and quotes nothing of it."""


@dataclass(frozen=True)
class Answer:
    """A chat completion: its text, and whether the length limit cut it off."""

    text: str
    truncated: bool


def read_body(body: bytes) -> dict[str, Any]:
    """The JSON object that a body holds.

    Raises:
        BadAnswer: it holds none.
    """
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):  # bytes that are no text are a ValueError, too
        raise BadAnswer("the answer is no JSON") from None
    if not isinstance(data, dict):
        raise BadAnswer("the answer is no JSON object")
    return data


def read_answer(data: dict[str, Any]) -> Answer:
    """The first choice's text.

    Raises:
        BadAnswer: there is none.
    """
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadAnswer("the answer has no choices")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    truncated = choice.get("finish_reason") == "length"
    if content is None and truncated and isinstance(message, dict):
        content = ""  # hidden reasoning has taken all there was: that is the model's own doing
    if not isinstance(content, str):
        raise BadAnswer("the answer has no text")
    if not content.strip() and not truncated:
        raise BadAnswer("the answer's text is empty")
    # Half of a surrogate pair is valid in JSON, and cannot be written to a file of records.
    return Answer(content.encode("utf-8", "replace").decode("utf-8"), truncated)


def read_usage(data: dict[str, Any], messages: Sequence[dict[str, str]], settings: ApiSettings) -> Usage:
    """What the endpoint says that it used; what it does not say is estimated."""
    usage = data.get("usage")
    if isinstance(usage, dict):
        read, written = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
        if read is not None and written is not None:
            return Usage(read, written, settings.cost(read, written))
    try:
        text = read_answer(data).text
    except BadAnswer:
        text = ""
    return estimate(messages, text, settings)


def estimate(messages: Sequence[dict[str, str]], text: str, settings: ApiSettings) -> Usage:
    """Usage by the texts' lengths: a token is about four bytes of English, and a message's frame some tokens more."""
    prompt_tokens = sum(_tokens(message["content"]) + 4 for message in messages)
    return Usage(prompt_tokens, _tokens(text), settings.cost(prompt_tokens, _tokens(text)), estimated=True)


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 4)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9 else None
