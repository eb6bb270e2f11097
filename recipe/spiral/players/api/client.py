"""Asks an endpoint: one bounded request after the other, until there is an answer or no time is left.

No endpoint decides how much is read, or where a request goes: bodies are cut, encoded ones are not unpacked, and
redirects are not followed. An answer of rubbish, or of one byte a minute, is asked for again like one that failed.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import math
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import httpx

from ..base import PlayerFailure, PlayerMisconfigured, Usage
from .answer import SHORTEST, Answer, BadAnswer, estimate, key_forms, read_answer, read_body, read_error, read_usage
from .settings import ApiSettings

#: Bytes that are read of an error, and of an answer besides its text; and of any answer at most.
_FRAME = 64 * 2**10
_LONGEST_ANSWER = 8 * 2**20
#: These concern every request alike: the key, or the model's or endpoint's name.
_CONFIGURATION = {
    301: "it has moved, and redirects are not followed",
    308: "it has moved, and redirects are not followed",
    401: "the key was refused",
    403: "access was refused",
    404: "there is no such model or address",
}
#: These may pass. All other 4xx say that the request is wrong, and it would be so again.
_PASSING = (302, 303, 307, 408, 409, 425, 429)
#: Where the message of an error is cut, in characters.
_LONGEST_REASON = 400

logger = logging.getLogger(__name__)


class _Passing(Exception):
    """A failure that may pass; ``wait`` is how many seconds the endpoint asks to wait, None if it does not."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.wait = wait


class Client:
    """One endpoint, within one event loop.

    Attributes:
        count: called with what every request has used, also those that came to nothing.
        doubt: called with what is wrong with an endpoint's count of tokens.
        places: of the responses that may be awaited at a time.
    """

    def __init__(self, settings: ApiSettings, count: Callable[[Usage], None], doubt: Callable[[str], None]) -> None:
        self.settings = settings
        self.count, self.doubt = count, doubt
        self.places = asyncio.Semaphore(settings.max_concurrency)
        self._key = settings.key()
        headers = {"Accept-Encoding": "identity"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key}"
        # ``places`` and ``asyncio.timeout`` are the limits.
        self._http = httpx.AsyncClient(headers=headers, timeout=None, limits=httpx.Limits(max_connections=None))

    async def ask(self, messages: Sequence[dict[str, str]], seed: int) -> tuple[Answer, Usage]:
        """The endpoint's answer to a conversation; ``seed`` is of the sampling, and of the pauses' lengths.

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
        try:
            async with asyncio.timeout(limit):
                data = read_body(await self._post(messages, seed))
        except httpx.ConnectError as error:  # nothing was sent
            raise _Passing(f"ConnectError: {error}") from None
        except (BadAnswer, httpx.HTTPError, OSError) as error:
            self.count(estimate(messages, "", self.settings))
            reason = str(error) if isinstance(error, BadAnswer) else f"{type(error).__name__}: {error}"
            late = isinstance(error, TimeoutError)
            raise _Passing(f"no answer within {limit:.3g} s" if late else reason) from None
        usage, doubt = read_usage(data, messages, self.settings)
        self.count(usage)
        if doubt:
            self.doubt(doubt)
        try:
            # shorter keys, of endpoints that take any, may be words of an answer
            clean = partial(self._without_key, shortest=SHORTEST)
            return read_answer(data, self.settings.longest_text, clean), usage
        except BadAnswer as error:
            raise _Passing(str(error)) from None

    async def _post(self, messages: Sequence[dict[str, str]], seed: int) -> bytes:
        """The body of a successful answer, as it comes.

        Raises:
            BadAnswer: it is too long, or encoded, although that was not asked for: a small body may unpack to a large
                one.
            _Passing, PlayerFailure, PlayerMisconfigured: the answer is an HTTP error.
        """
        settings = self.settings
        fields: dict[str, Any] = {"model": settings.model, "messages": list(messages), "stream": False}
        optional = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        fields |= {name: value for name, value in optional.items() if value is not None}
        if settings.send_seed:
            fields["seed"] = seed
        url = f"{settings.base_url.rstrip('/')}/chat/completions"
        longest = min(_FRAME + settings.longest_text, _LONGEST_ANSWER)
        async with self._http.stream("POST", url, json={**fields, **settings.extra_body}) as response:
            encoding = response.headers.get("content-encoding", "").strip().lower()
            plain = encoding in ("identity", "")
            if not response.is_success:
                self._refuse(response, read_error(await _read(response, _FRAME)) if plain else "")
            if not plain:
                raise BadAnswer(f"the answer is encoded ({encoding[:20]}), which was not asked for")
            body = await _read(response, longest + 1)
        if len(body) > longest:
            raise BadAnswer(f"the answer is longer than {longest:,} bytes, which are enough for max_tokens")
        return body

    def _refuse(self, response: httpx.Response, said: str) -> NoReturn:
        """Raise the error that an HTTP status stands for; ``said`` may hold the key."""
        settings, status = self.settings, response.status_code
        if status in _CONFIGURATION:
            raise PlayerMisconfigured(
                self._clean(
                    f"{settings.base_url} answers {status}, {_CONFIGURATION[status]}: check api_key_env="
                    f"{settings.api_key_env}, model={settings.model} and base_url. It says: {said}"
                )
            )
        if status in _PASSING or status >= 500:
            raise _Passing(f"HTTP {status}", _retry_after(response.headers.get("retry-after", "")))
        self._fail(f"HTTP {status}: {said}")

    def _fail(self, reason: str, again: bool = True) -> NoReturn:
        failure = PlayerFailure(self._clean(f"{self.settings.model}: {reason}"))
        failure.again = again
        raise failure

    def _clean(self, text: str) -> str:
        """One line without the key, not too long, and without what a terminal would obey. (The key first: a cut might
        leave half of it.)"""
        text = "".join(letter if letter.isprintable() else " " for letter in self._without_key(text))
        text = " ".join(text.split())
        return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]} ..."

    def _without_key(self, text: str, shortest: int = 1) -> str:
        """``text`` without the key, in any of its forms, if the key has that many characters."""
        if self._key is None or len(self._key) < shortest:
            return text
        for form in key_forms(self._key):
            text = text.replace(form, "***")
        return text


async def _read(response: httpx.Response, most: int) -> bytes:
    """The first ``most`` bytes of a body."""
    body = bytearray()
    async for piece in response.aiter_raw():
        body += piece
        if len(body) >= most:
            break
    return bytes(body[:most])


def _retry_after(text: str) -> float | None:
    """Seconds, from a number or a date; None if it is neither."""
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None
