"""Asks an endpoint: one bounded request after the other, until there is an answer or no time is left.

The openai library knows the protocol and its errors. Requests are repeated here, because an answer of rubbish, or of
one byte a minute, must be repeated like an error, and all of it must end within one time. No endpoint decides where a
request goes, or what is in the next one: redirects are not followed, and cookies not kept.
"""

from __future__ import annotations

import asyncio
import email.utils
import importlib.util
import json
import logging
import math
import random
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NoReturn

from ....extras import install
from ....players.player import PlayerFailure, PlayerMisconfigured, Response
from .answer import BadAnswer, estimate, read_answer, read_usage
from .endpoint_settings import ApiSettings
from .usage import Usage

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
#: Words of errors that may pass, although they speak of a quota or of billing.
_MAY_PASS = re.compile("rate.?limit|per.(second|minute|hour)|try.again|retry", re.IGNORECASE)
#: Seconds for a connection, within those for a request.
_CONNECT = 4.0
#: Bytes of an answer as JSON: several times those of 65,536 tokens.
_LONGEST_BODY = 2**22
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


class NotAsked(PlayerFailure):
    """The endpoint is not asked any more, before somebody pays or raises the budget."""

    again = False


class Unpaid(NotAsked):
    """The endpoint says that its quota is spent: it answers nobody until somebody pays."""


class Client:
    """One endpoint, within one event loop.

    Attributes:
        count: called with what every request has used, also those that came to nothing.
        places: of the responses that may be awaited at a time.
    """

    def __init__(self, settings: ApiSettings, count: Callable[[Usage], None]) -> None:
        """
        Raises:
            ImportError: the openai package is not installed.
            PlayerMisconfigured: the environment has no key, or a proxy or certificates that cannot be used.
        """
        openai = load_openai()
        self.settings, self.count = settings, count
        self.places = asyncio.Semaphore(settings.max_concurrency)
        key = settings.key() or ""
        self._keys = [key] if key else []
        try:
            http = openai.DefaultAsyncHttpxClient(
                follow_redirects=False,
                cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),
                event_hooks={"response": [_read_body]},
            )
            self._client = openai.AsyncOpenAI(
                api_key=key or "none",
                base_url=settings.base_url,
                timeout=openai.Timeout(None, connect=min(settings.timeout, _CONNECT)),
                max_retries=0,
                # The library's own variable, OPENAI_CUSTOM_HEADERS, might send another endpoint's key.
                default_headers={"Authorization": f"Bearer {key or 'none'}"},
                http_client=http,
            )
        except Exception as error:  # of any kind: an address, a file, a package that is not installed
            raise PlayerMisconfigured(
                f"{settings.base_url} cannot be asked as this machine's environment is (HTTPS_PROXY, ALL_PROXY, "
                f"SSL_CERT_FILE, ...): {self._words(str(error))}"
            ) from None

    async def ask(self, messages: Sequence[dict[str, str]], seed: int, check: Callable[[], None]) -> Response:
        """The endpoint's answer to a conversation, with what it used.

        Args:
            messages: the conversation.
            seed: of the sampling, and of the pauses' lengths.
            check: raises, before each request, if there is to be none any more.

        Raises:
            PlayerFailure: there is none, within the time and the number of requests that the settings allow.
        """
        settings, rng = self.settings, random.Random(seed)
        end = time.monotonic() + settings.total_timeout
        for attempt in range(settings.retries + 1):
            check()
            try:
                return await self._request(messages, seed, min(settings.timeout, end - time.monotonic()))
            except _Passing as failure:
                reason, pause = str(failure), self._pause(attempt, failure.wait, rng)
            tries = f"{attempt + 1} {'request' if attempt == 0 else 'requests'}"
            if attempt == settings.retries:
                break
            if time.monotonic() + pause >= end:
                late = f"a pause of {pause:.3g} s leaves no time of total_timeout={settings.total_timeout:g} s"
                self._fail(f"{reason}; after {tries} {late}", again=False)
            logger.info("%s", self._clean(f"{settings.model}: {reason}; asked again in {pause:.1f} s"))
            await asyncio.sleep(pause)
        self._fail(f"{reason}; after {tries}")

    async def try_once(self, messages: Sequence[dict[str, str]]) -> str | None:
        """One request before there are games.

        Returns:
            Why an endpoint that works has no answer now: it is busy, or slow; None: it has answered.

        Raises:
            PlayerFailure: nobody is there, or whoever is there would not answer games, either.
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
            return wait
        longest = min(settings.backoff * 2.0 ** min(attempt, 60), settings.max_backoff)
        return longest * rng.uniform(0.5, 1.0)

    async def _request(self, messages: Sequence[dict[str, str]], seed: int, limit: float) -> Response:
        """One request within ``limit`` seconds.

        A request that was sent and has no answer is counted by its prompt, for which an endpoint may charge.
        """
        import openai  # there is a client: it is installed

        settings, refused, late = self.settings, None, False
        fields: dict[str, Any] = {"model": settings.model, "messages": list(messages), "stream": False}
        if settings.temperature is not None:
            fields["temperature"] = settings.temperature
        if settings.max_tokens is not None:
            fields["max_tokens"] = settings.max_tokens
        if settings.send_seed:
            fields["seed"] = seed
        completions = self._client.chat.completions.with_raw_response
        try:
            async with asyncio.timeout(limit):
                raw = await completions.create(**fields, extra_body=dict(settings.extra_body))
        except asyncio.CancelledError:
            self.count(estimate(messages, "", settings))
            raise
        except TimeoutError:
            lost, late = f"no answer within {limit:.3g} s", True
        except openai.APIStatusError as error:
            refused = error.status_code, error.body, error.response.text, error.response.headers
        except Exception as error:  # the library's own, and what it does not expect of an endpoint
            cause = error.__cause__ or error
            lost = _with_words(type(cause).__name__, self._words(str(cause)))
        else:
            return self._read(raw.http_response.content, messages)
        # Raised here, because an exception of above, as the context of this one, might show the key.
        if refused:
            self._refuse(*refused)
        if not lost.startswith("Connect"):  # else nothing was sent
            self.count(estimate(messages, "", settings))
        raise _Passing(lost, busy=late)

    def _read(self, body: bytes, messages: Sequence[dict[str, str]]) -> Response:
        """The answer in the body of a success. An error there is one all the same, and is not counted."""
        settings, answer, lost, text = self.settings, None, "", body.decode("utf-8", "replace")
        try:
            data = json.loads(body)
        except (ValueError, RecursionError):  # bytes that are no text are a ValueError, too
            data = None
        try:
            answer = read_answer(data, settings.longest_text, self._without_keys)
        except BadAnswer as bad:
            lost = str(bad)
        if answer is None and isinstance(data, dict) and (error := data.get("error")):
            code = error.get("code") if isinstance(error, dict) else None
            self._refuse(code if isinstance(code, int) and 300 <= code < 600 else 503, error, text, {})
        usage = read_usage(data, messages, answer.text if answer else "", settings)
        self.count(usage)
        if answer is None:
            raise _Passing(_with_words(lost, self._words(text)))
        return replace(answer, usage=asdict(usage))

    def _refuse(self, status: int, error: object, text: str, headers: Mapping[str, str]) -> NoReturn:
        """Raise what an error in a response of this text stands for: its fields, or its message alone."""
        fields = error if isinstance(error, dict) else {"message": error}
        message = fields.get("message")
        said_so = message if message and isinstance(message, str) else text or headers.get("location", "")
        settings, words = self.settings, self._words(said_so)
        said = _with_words(f"HTTP {status}", words)
        unpaid = _UNPAID.search(words) and not _MAY_PASS.search(words)
        if status == 402 or unpaid or _UNPAID.search(self._words(f"{fields.get('code')} {fields.get('type')}")):
            raise Unpaid(self._clean(f"{settings.model}: {said}"))
        if status in _CONFIGURATION or 300 <= status < 400:
            why = _CONFIGURATION.get(status, "it has moved, and redirects are not followed")
            check = f"check api_key_env={settings.api_key_env}, model={settings.model} and base_url"
            refusal = f"{settings.base_url} answers {status}, {why}: {check}"
            self._fail(f"{refusal}. It says: {words}" if words else refusal)
        if status in _PASSING or status >= 500:
            raise _Passing(said, _retry_after(headers), busy=True)
        self._fail(said)

    def _fail(self, reason: str, again: bool = True) -> NoReturn:
        failure = PlayerFailure(self._clean(f"{self.settings.model}: {reason}"))
        failure.again = again
        raise failure

    def _words(self, text: str) -> str:
        """An endpoint's words as people may see them, not too many. (The key first: a cut might leave half of it.)"""
        text = self._clean(re.sub("<[^<>]*>", " ", text))  # often a page
        return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]} ..."

    def _clean(self, text: str) -> str:
        """One line without keys, and without what a terminal would obey."""
        text = self._without_keys(text)
        return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())

    def _without_keys(self, text: str) -> str:
        for key in self._keys:
            text = text.replace(key, "***")
        return text


async def _read_body(response: Any) -> None:
    """Read an answer, unpacked, up to a limit: the client would read it whole, and unpack it, however long it is."""
    response.encoding = "utf-8"  # as JSON is; the client fails on others that a header may name
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as parts:
        async for part in parts:
            body += part
            if len(body) > _LONGEST_BODY:
                raise BadAnswer(f"the answer has more than {_LONGEST_BODY} bytes")
    response._content = bytes(body)


def _with_words(what: str, words: str) -> str:
    return f"{what}: {words}" if words else what


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
    text = headers.get("retry-after", "")
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
