"""What an endpoint sent, read with suspicion: fields may be missing, null or of another type, or quote the key."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any
from urllib.parse import quote, quote_plus

from ....players.records import Usage
from .endpoint_settings import ApiSettings

#: An endpoint's count of tokens is doubtful where the texts' lengths say more than so many times as much.
_FAR = 4
#: Tokens that an endpoint may read besides the texts: the model's chat template, and a system prompt of its own.
_FRAME = 1024
#: Characters of a key below which it may be a word, and its encoded forms would be found in other text, too.
SHORTEST = 8
#: Where endpoints put an error's words: the fields that hold them, or hold what holds them; the first that is there.
_WORDS = ("error", "errors", "detail", "base_resp", "message", "msg", "status_msg", "error_description", "title")
#: Where they put what kind of error it is.
_KINDS = ("code", "type", "status", "status_code", "error_code")
#: How deep the words may lie.
_DEEPEST = 8
#: Characters of an error that are looked at.
_LONGEST_ERROR = 4096


class BadAnswer(Exception):
    """What came is no answer; the message says in a few words why, and quotes nothing of it."""


@dataclass(frozen=True)
class Error:
    """What an endpoint says of a request that failed.

    Attributes:
        words: for people; what there is, where no error can be read out of it.
        kinds: the codes and types of the error, in small letters; empty where there is none.
        said: whether it says at all that there is an error.
    """

    words: str = ""
    kinds: tuple[str, ...] = ()
    said: bool = False


@dataclass(frozen=True)
class Answer:
    """A chat completion: its text, and whether the length limit cut it off."""

    text: str
    truncated: bool


def read_body(body: bytes) -> dict[str, Any]:
    """The JSON object that an answer's body holds; ``BadAnswer`` if it holds none."""
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):  # bytes that are no text are a ValueError, too
        raise BadAnswer("the answer is no JSON") from None
    if not isinstance(data, dict):
        raise BadAnswer("the answer is no JSON object")
    return data


def read_error(body: bytes) -> Error:
    """The error in a body: in OpenAI's form, or in another one."""
    text = body.decode("utf-8", "replace")
    try:
        layer = json.loads(text)
    except (ValueError, RecursionError):
        return Error(re.sub("<[^<>]*>", " ", text)[:_LONGEST_ERROR])  # often a page
    choices = layer.get("choices") if isinstance(layer, dict) and not layer.get("error") else None
    if isinstance(choices, list) and choices:
        layer = {"error": choices[0].get("error") if isinstance(choices[0], dict) else None}
    kinds: list[str] = []
    inside = False
    for _ in range(_DEEPEST):
        if isinstance(layer, list):
            layer = layer[0] if layer else None
        if isinstance(layer, str):
            return Error(layer[:_LONGEST_ERROR], tuple(kinds), said=True)
        if not isinstance(layer, dict):
            break
        kinds += [str(layer[name])[:100].lower() for name in _KINDS if isinstance(layer.get(name), str | int)]
        layer = next((layer[name] for name in _WORDS if layer.get(name)), None)
        inside = inside or layer is not None
    return Error(text[:_LONGEST_ERROR], tuple(kinds), inside)


def read_answer(data: dict[str, Any], longest: int, clean: Callable[[str], str] = str) -> Answer:
    """The first choice's text; ``BadAnswer`` if there is none.

    Args:
        longest: bytes; a longer text, of an endpoint that ignores ``max_tokens``, is cut there.
        clean: takes the key out of the text, before the cut might leave half of it.
    """
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
    return Answer(text[:longest].decode("utf-8", "ignore"), truncated or len(text) > longest)


def read_usage(
    data: dict[str, Any], messages: Sequence[dict[str, str]], settings: ApiSettings
) -> tuple[Usage, str | None]:
    """What a request has used, by the endpoint's count as far as that can be true.

    A count that is not given, or that is far below the estimate, is estimated. None is above what the prompt and the
    longest response allow: no token is shorter than a byte. The second value says what is wrong with the endpoint's
    count, None if nothing is.
    """
    try:
        text = read_answer(data, settings.longest_text).text
    except BadAnswer:
        text = ""
    usage, expected = data.get("usage"), estimate(messages, text, settings)
    said = usage if isinstance(usage, dict) else {}
    read, written = _count(said.get("prompt_tokens")), _count(said.get("completion_tokens"))
    if read is None or written is None:
        return expected, None
    believed = (
        min(read, sum(_bytes(message["content"]) for message in messages) + _FRAME),
        min(written, max(settings.longest_response, _bytes(text))),
    )
    if read * _FAR < expected.prompt_tokens or written * _FAR < expected.response_tokens:
        believed = expected.prompt_tokens, expected.response_tokens
    if believed == (read, written):
        return Usage(read, written, settings.cost(read, written)), None
    doubt = (
        f"the endpoint counts {read:,} tokens read and {written:,} written where the texts' lengths suggest "
        f"{expected.prompt_tokens:,} and {expected.response_tokens:,}"
    )
    return Usage(*believed, settings.cost(*believed), estimated=True), doubt


def estimate(messages: Sequence[dict[str, str]], text: str, settings: ApiSettings) -> Usage:
    """Usage by the texts' lengths: a token is about four bytes of English, and a message's frame some tokens more."""
    prompt_tokens = sum(_tokens(message["content"]) + 4 for message in messages)
    return Usage(prompt_tokens, _tokens(text), settings.cost(prompt_tokens, _tokens(text)), estimated=True)


def _tokens(text: str) -> int:
    return -(-_bytes(text) // 4)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


def _count(value: object) -> int | None:
    """A number of tokens; one that nobody can mean is cut, so that it can be shown."""
    return min(value, 10**12) if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def key_forms(key: str) -> list[str]:
    """How the key may come back: as it is, quoted or encoded; the longest form first."""
    return sorted({form for form in (key, *_quoted(key), *_encoded(key)) if form}, key=len, reverse=True)


def _quoted(key: str) -> Iterator[str]:
    yield repr(key)[1:-1]
    yield json.dumps(key)[1:-1]
    strict = re.sub("[^0-9A-Za-z%]", lambda sign: f"%{ord(sign[0]):02X}", quote(key, safe=""))
    for percent in (quote(key, safe=""), quote_plus(key), strict):
        yield percent
        yield re.sub("%..", lambda escape: escape[0].lower(), percent)


def _encoded(key: str) -> Iterator[str]:
    if len(key) < SHORTEST:
        return
    content = key.encode()
    yield content.hex()
    yield content.hex().upper()
    for before in range(3):  # base64 depends on how many bytes, modulo 3, come before the key
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            text = encode(bytes(before) + content).decode()
            # without the characters at the ends, which neighbours have a part in
            yield text[-(-before * 8 // 6) : (before + len(content)) * 8 // 6]


def without_parts(text: str, forms: Sequence[str]) -> str:
    """``text`` with *** for these forms, and for parts of them: a cut, or an endpoint, may leave half a key."""
    parts = {form[at : at + SHORTEST] for form in forms for at in range(max(1, len(form) - SHORTEST + 1))}
    hidden = bytearray(len(text))
    for length in {len(part) for part in parts}:
        for at in range(len(text) - length + 1):
            if text[at : at + length] in parts:
                hidden[at : at + length] = bytes([1]) * length
    runs = groupby(zip(text, hidden, strict=True), key=itemgetter(1))
    return "".join("***" if masked else "".join(letter for letter, _ in run) for masked, run in runs)
