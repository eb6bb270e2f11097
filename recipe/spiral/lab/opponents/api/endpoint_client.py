"""Asks an endpoint: one bounded request after the other, until there is an answer or no time is left.

The openai library knows the protocol and its errors. Requests are repeated here, because an answer of rubbish, or of
one byte a minute, must be repeated like an error, and all of it must end within one time. No endpoint decides how much
is read, or where a request goes: bodies are cut before anything unpacks them, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
import email.utils
import importlib.util
import logging
import math
import random
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from omegaconf import OmegaConf

from ....extras import install
from ....players.player import PlayerFailure, PlayerMisconfigured
from ....players.records import Usage
from ....processes.masking import secrets_of
from .answer import (
    SHORTEST,
    Answer,
    BadAnswer,
    Error,
    estimate,
    key_forms,
    read_answer,
    read_body,
    read_error,
    read_usage,
    without_parts,
)
from .endpoint_settings import ApiSettings

#: Bytes that are read of an error, and of an answer besides its text; and of any answer at most.
_FRAME = 64 * 2**10
_LONGEST_ANSWER = 8 * 2**20
#: These concern every request alike: the key, or the model's or endpoint's name. So does any redirect.
_CONFIGURATION = {
    401: "the key was refused",
    403: "access was refused",
    404: "there is no such model or address",
}
#: These may pass. All other 4xx say that the request is wrong, and it would be so again.
_PASSING = (408, 409, 425, 429)
#: Kinds and words of errors that somebody must pay for, whatever the status.
_UNPAID = re.compile(
    "insufficient.{0,20}(quota|balance|credit|fund)|(quota|credit|balance).{0,40}(exceeded|exhausted|spent|too low)|"
    "exceeded.{0,20}quota|billing|payment.required|arrear|out of credit",
    re.IGNORECASE,
)
#: Kinds and words of errors that may pass.
_MAY_PASS = re.compile(
    "rate.?limit|too.many.requests|per.(second|minute|hour)|overload|unavailable|time.?out|timed.out|server.error|"
    "internal.{0,10}error|exhausted|busy|loading|temporar|try.again|retry",
    re.IGNORECASE,
)
#: The status that a kind of error stands for, where the answer's own is that of a success.
_STATUS_OF = {
    401: re.compile("api.?key|authenti|unauthori"),
    403: re.compile("permission|forbidden|denied"),
    404: re.compile("not.?found"),
    503: _MAY_PASS,
}
#: Seconds for a connection, within those for a request.
_CONNECT = 4.0
#: Where an endpoint's words are cut, in characters.
_LONGEST_WORDS = 300

logger = logging.getLogger(__name__)


class _Passing(Exception):
    """A failure that may pass.

    Attributes:
        wait: how many seconds the endpoint asks to wait; None: it does not.
        busy: whether somebody is there, who has no time; otherwise nobody is, or what is there answers rubbish.
    """

    def __init__(self, reason: str, wait: float | None = None, busy: bool = False) -> None:
        super().__init__(reason)
        self.wait, self.busy = wait, busy


class _HTTPError(Exception):
    """An answer that is no success. What it says may hold the key, and is not shown before that is taken out."""

    def __init__(self, status: int, error: Error, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.error, self.headers = status, error, headers


class Unpaid(PlayerFailure):
    """The endpoint says that its quota is spent: it answers nobody until somebody pays."""

    again = False


class Client:
    """One endpoint, within one event loop.

    Attributes:
        count: called with what every request has used, also those that came to nothing.
        doubt: called with what is wrong with an endpoint's count of tokens.
        places: of the responses that may be awaited at a time.
    """

    def __init__(self, settings: ApiSettings, count: Callable[[Usage], None], doubt: Callable[[str], None]) -> None:
        """
        Raises:
            ImportError: the openai package is not installed.
            PlayerMisconfigured: the environment variable of the key is not set.
        """
        openai = load_openai()
        self.settings = settings
        self.count, self.doubt = count, doubt
        self.places = asyncio.Semaphore(settings.max_concurrency)
        key = settings.key() or ""
        in_body = secrets_of(OmegaConf.create({"extra_body": dict(settings.extra_body)}))
        self._forms = [form for known in (key, *in_body) for form in key_forms(known)]
        # shorter keys, of endpoints that take any, may be words of an answer
        self._forms_in_answers = self._forms if len(key) >= SHORTEST else [*map(str, in_body)]
        self._client = openai.AsyncOpenAI(
            api_key=key or "none",
            base_url=settings.base_url,
            timeout=openai.Timeout(settings.timeout, connect=min(settings.timeout, _CONNECT)),
            max_retries=0,
            default_headers={"Accept-Encoding": "identity"},
            http_client=openai.DefaultAsyncHttpxClient(
                follow_redirects=False, event_hooks={"response": [_refuse_what_is_no_answer]}
            ),
        )
        # While a body is read, errors are those of the HTTP library, of which openai has had more than one.
        http = [sys.modules[name] for name in ("httpx", "httpx2") if name in sys.modules]
        others = (openai.OpenAIError, OSError, *(each.HTTPError for each in http))
        self._errors: tuple[type[Exception], ...] = (BadAnswer, _HTTPError, *others)
        self._not_sent = tuple(error for each in http for error in (each.ConnectError, each.ConnectTimeout))

    async def ask(self, messages: Sequence[dict[str, str]], seed: int) -> tuple[Answer, Usage]:
        """The endpoint's answer to a conversation.

        Args:
            messages: the conversation.
            seed: of the sampling, and of the pauses' lengths.

        Raises:
            PlayerFailure: there is none, within the time and the number of requests that the settings allow.
            PlayerMisconfigured: there will never be one, with this key or model.
        """
        settings, rng = self.settings, random.Random(seed)
        end = time.monotonic() + settings.total_timeout
        for attempt in range(settings.retries + 1):
            try:
                return await self._request(messages, seed, min(settings.timeout, end - time.monotonic()))
            except _Passing as failure:
                reason, pause = str(failure), self._pause(attempt, failure.wait, rng)
            tries = f"{attempt + 1} {'request' if attempt == 0 else 'requests'}"
            if attempt == settings.retries:
                break
            if time.monotonic() + pause >= end:
                late = f"{reason}; after {tries} no time is left of total_timeout={settings.total_timeout:g} s"
                self._fail(late, again=False)
            logger.info("%s", self._clean(f"{settings.model}: {reason}; asked again in {pause:.1f} s"))
            await asyncio.sleep(pause)
        self._fail(f"{reason}; after {tries}")

    async def try_once(self, messages: Sequence[dict[str, str]]) -> str | None:
        """One request before there are games.

        Returns:
            Why an endpoint that works has no answer now: it is busy, or slow; None: it has answered.

        Raises:
            PlayerFailure, PlayerMisconfigured: nobody is there, or whoever is there would not answer games, either.
        """
        try:
            await self._request(messages, 0, self.settings.timeout)
        except _Passing as failure:
            if not failure.busy:
                self._fail(f"{self.settings.base_url}: {failure}; check base_url, and that the server runs")
            return self._clean(str(failure))
        return None

    def _pause(self, attempt: int, wait: float | None, rng: random.Random) -> float:
        settings = self.settings
        if wait is not None:
            return min(wait, settings.max_retry_after)
        longest = min(settings.backoff * 2.0 ** min(attempt, 60), settings.max_backoff)
        return longest * rng.uniform(0.5, 1.0)

    async def _request(self, messages: Sequence[dict[str, str]], seed: int, limit: float) -> tuple[Answer, Usage]:
        """One request within ``limit`` seconds.

        A request that was sent and has no answer is counted by its prompt, for which an endpoint may charge.
        """
        sent, refused, late = True, None, False
        try:
            async with asyncio.timeout(limit):
                body = await self._post(messages, seed)
        except TimeoutError:
            lost, late = f"no answer within {limit:.3g} s", True
        except self._errors as error:
            # openai's own message is only "Connection error.", and some versions of it wrap what a hook raises
            cause = error.__cause__ or error
            if isinstance(cause, _HTTPError):
                refused = cause.status, cause.error, cause.headers
            elif isinstance(cause, BadAnswer):
                lost = str(cause)
            else:
                lost = _with_words(type(cause).__name__, self._words(str(cause)))
                sent = not isinstance(cause, self._not_sent)
        else:
            return self._read(body, messages)
        if refused:
            self._refuse(*refused)
        if sent:
            self.count(estimate(messages, "", self.settings))
        raise _Passing(lost, busy=late)

    def _read(self, body: bytes, messages: Sequence[dict[str, str]]) -> tuple[Answer, Usage]:
        """The answer in the body of a success. An error there is one all the same, and is not counted."""
        settings = self.settings
        data, answer, lost, error = dict[str, Any](), None, "", Error()
        try:
            data = read_body(body)
            answer = read_answer(data, settings.longest_text, self._without_keys)
        except BadAnswer as bad:
            lost, error = str(bad), read_error(body[:_FRAME])
        if error.said or _status_of(error):
            self._refuse(200, error, {})
        usage, doubt = read_usage(data, messages, settings)
        self.count(usage)
        if doubt:
            self.doubt(doubt)
        if answer is None:
            raise _Passing(_with_words(lost, self._words(error.words)))
        return answer, usage

    async def _post(self, messages: Sequence[dict[str, str]], seed: int) -> bytes:
        """The body of a successful answer, as it comes."""
        settings = self.settings
        fields: dict[str, Any] = {"model": settings.model, "messages": list(messages), "stream": False}
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.max_tokens is not None:
            fields["max_tokens"] = settings.max_tokens
        if settings.send_seed:
            fields["seed"] = seed
        longest = min(_FRAME + settings.longest_text, _LONGEST_ANSWER)
        completions = self._client.chat.completions.with_streaming_response
        async with completions.create(**fields, extra_body=dict(settings.extra_body)) as response:
            body = bytearray()
            async for piece in response.iter_bytes():
                body += piece
                if len(body) > longest:
                    raise BadAnswer(f"the answer is longer than {longest:,} bytes, which are enough for max_tokens")
            return bytes(body)

    def _refuse(self, status: int, error: Error, headers: Mapping[str, str]) -> NoReturn:
        """Raise what an error stands for; its status may be that of a success, and then its kind says more."""
        settings, words = self.settings, self._words(error.words or headers.get("location", ""))
        said = _with_words(f"HTTP {status}", words)
        status = status if status >= 300 else _status_of(error)
        if status == 402 or _is_unpaid(error):
            raise Unpaid(self._clean(f"{settings.model}: {said}"))
        if status in _CONFIGURATION or 300 <= status < 400:
            why = _CONFIGURATION.get(status, "it has moved, and redirects are not followed")
            check = f"check api_key_env={settings.api_key_env}, model={settings.model} and base_url"
            refusal = f"{settings.base_url} answers {status}, {why}: {check}"
            raise PlayerMisconfigured(self._clean(f"{refusal}. It says: {words}" if words else refusal))
        if status in _PASSING or status >= 500:
            raise _Passing(said, _retry_after(headers), busy=True)
        self._fail(said)

    def _fail(self, reason: str, again: bool = True) -> NoReturn:
        failure = PlayerFailure(self._clean(f"{self.settings.model}: {reason}"))
        failure.again = again
        raise failure

    def _words(self, text: str) -> str:
        """An endpoint's words as people may see them, not too many. (The key first: a cut might leave half of it.)"""
        text = self._clean(text)
        return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]} ..."

    def _clean(self, text: str) -> str:
        """One line without keys or parts of them, and without what a terminal would obey."""
        text = without_parts(text, self._forms)
        return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())

    def _without_keys(self, text: str) -> str:
        """An answer's text without keys, in any of their forms."""
        for form in self._forms_in_answers:
            text = text.replace(form, "***")
        return text


async def _refuse_what_is_no_answer(response: Any) -> None:
    """Stop at the headers of an encoded answer, and at the beginning of an error's body.

    Raises:
        _HTTPError: it is an error.
        BadAnswer: it is encoded, although that was not asked for: a small body may unpack to a large one.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    plain, body = encoding in ("identity", ""), bytearray()
    if not response.is_success:
        if plain:
            async for piece in response.aiter_raw():
                body += piece
                if len(body) >= _FRAME:
                    break
        raise _HTTPError(response.status_code, read_error(bytes(body[:_FRAME])), dict(response.headers))
    if not plain:
        raise BadAnswer(f"the answer is encoded ({encoding[:20]}), which was not asked for")


def _with_words(what: str, words: str) -> str:
    return f"{what}: {words}" if words else what


def _is_unpaid(error: Error) -> bool:
    by_words = error.said and _UNPAID.search(error.words) and not _MAY_PASS.search(error.words)
    return bool(by_words) or any(map(_UNPAID.search, error.kinds))


def _status_of(error: Error) -> int:
    """The HTTP status that an error's kinds, or its words, stand for; 0: none that is known."""
    if numbers := [int(kind) for kind in error.kinds if re.fullmatch("[3-5][0-9][0-9]", kind)]:
        return numbers[-1]
    known = (status for status, pattern in _STATUS_OF.items() if any(map(pattern.search, error.kinds)))
    return next(known, 503 if error.said and _MAY_PASS.search(error.words) else 0)


def load_openai() -> Any:
    """The client library. Its import takes a second: it is for the beginning, not for the first game.

    Raises:
        ImportError: it is not installed; the message names the extra.
    """
    if importlib.util.find_spec("openai") is None:
        raise ImportError(f"opponents behind an API need the openai package: {install('api')}")
    import openai

    for library in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        logging.getLogger(library).setLevel(logging.WARNING)  # below, they log an endpoint's headers, as they come
    return openai


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds, from a number or a date; None if there is neither."""
    text = {name.lower(): value for name, value in headers.items()}.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
