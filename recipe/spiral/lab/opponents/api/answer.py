"""What an endpoint sent, read with suspicion: fields may be missing, null or of another type, or quote the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ....players.player import Response
from .endpoint_settings import ApiSettings
from .usage import Usage

#: No count of tokens is as high: it could not be shown, or multiplied by a price.
_TOO_MANY = 10**12


class BadAnswer(Exception):
    """What came is no answer; the message says in a few words why, and quotes nothing of it."""


def read_answer(data: object, longest: int, clean: Callable[[str], str]) -> Response:
    """The first choice's text; ``BadAnswer`` if there is none.

    Args:
        longest: bytes; a longer text, of an endpoint that ignores ``max_tokens``, is cut there.
        clean: takes the key out of the text, before the cut might leave half of it.
    """
    if not isinstance(data, dict):
        raise BadAnswer("the answer is no JSON object")
    choices = data.get("choices")
    if not isinstance(choices, list) or not choices:
        raise BadAnswer("the answer has no choices")
    choice = choices[0] if isinstance(choices[0], dict) else {}
    if choice.get("error"):
        raise BadAnswer("the answer broke off with an error")
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
    text = clean(content).encode("utf-8", "replace")
    return Response(text[:longest].decode("utf-8", "ignore"), truncated=truncated or len(text) > longest)


def read_usage(data: object, messages: Sequence[dict[str, str]], text: str, settings: ApiSettings) -> Usage:
    """What a request has used: by the endpoint's two counts, where it gives both, and otherwise by the texts' lengths.

    Args:
        data: what came.
        text: the answer, "" if there was none.
    """
    usage = data.get("usage") if isinstance(data, dict) else None
    said = usage if isinstance(usage, dict) else {}
    counts = said.get("prompt_tokens", 0), said.get("completion_tokens", 0)
    if all(type(count) is int and 0 < count < _TOO_MANY for count in counts):
        return Usage(*counts, settings.cost(*counts))
    return estimate(messages, text, settings)


def estimate(messages: Sequence[dict[str, str]], text: str, settings: ApiSettings) -> Usage:
    """Usage by the texts' lengths: a token is about four bytes of English, and a message's frame some tokens more."""
    prompt_tokens = sum(_tokens(message["content"]) + 4 for message in messages)
    return Usage(prompt_tokens, _tokens(text), settings.cost(prompt_tokens, _tokens(text)), estimated=True)


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 4)
