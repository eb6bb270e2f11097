"""Asks an endpoint by the openai library, which repeats requests. All of a response's requests end within one time."""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any
from urllib.parse import urlsplit

from ....extras import install
from ....players.player import PlayerFailure, Response
from ....processes.terminal import visible
from .endpoint_settings import ApiSettings
from .usage import Usage

#: Seconds for a connection, within those for a request.
_CONNECT = 4.0
#: Where an endpoint's words are cut, in characters.
_LONGEST_WORDS = 300
#: No text has more characters than this for each token; tokens of the longest response where no setting limits it.
_CHARACTERS_PER_TOKEN, _LONGEST_RESPONSE = 16, 2**16
#: No count of tokens is as high.
_TOO_MANY = 10**12
#: A shorter key may be a word of an answer.
_SHORTEST_KEY = 8
#: The only headers that endpoints other than OpenAI's get. The library adds those of OPENAI_CUSTOM_HEADERS,
#: OPENAI_ORG_ID and OPENAI_PROJECT_ID, which may belong to another service.
_HEADERS = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"}


class Busy(PlayerFailure):
    """Somebody is there, who has no time now."""


class NotAsked(PlayerFailure):
    """The endpoint is not asked any more, before somebody pays or raises the budget."""

    again = False


class Unpaid(NotAsked):
    """The endpoint says that its quota is spent: it answers nobody until somebody pays."""


class Client:
    """One endpoint, within one event loop.

    Attributes:
        count: called with what every response has used, also those that came to nothing.
        places: of the responses that may be awaited at a time.
    """

    def __init__(self, settings: ApiSettings, count: Callable[[Usage], None]) -> None:
        """
        Raises:
            ImportError: the openai package is not installed.
            PlayerMisconfigured: the environment has no key.
        """
        openai = _load_openai()
        self.settings, self.count = settings, count
        self.places = asyncio.Semaphore(settings.max_concurrency)
        self._key = key = settings.key() or "none"
        others = urlsplit(settings.base_url).hostname != "api.openai.com"

        async def keep_ours(request: Any) -> None:
            for name in set(request.headers) - _HEADERS if others else ():
                if not name.startswith("x-stainless-"):  # the library's own: it reads them again
                    del request.headers[name]
            request.headers["Authorization"] = f"Bearer {key}"

        # No endpoint decides where a request, and the key in it, goes.
        http = openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"request": [keep_ours]})
        self._client = openai.AsyncOpenAI(
            api_key=key,
            base_url=settings.base_url,
            timeout=openai.Timeout(settings.timeout, connect=min(settings.timeout, _CONNECT)),
            max_retries=settings.retries,
            http_client=http,
        )

    async def ask(self, messages: Sequence[dict[str, str]], seed: int) -> Response:
        """The endpoint's answer to a conversation, with what it used.

        Without an answer it is counted by its prompt, for which an endpoint may charge, unless that was an error.

        Raises:
            PlayerFailure: there is no answer, within ``total_timeout`` and the number of retries.
        """
        import openai  # there is a client: it is installed

        settings = self.settings
        fields = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        fields["seed"] = seed if settings.send_seed else None
        given: dict[str, Any] = {name: value for name, value in fields.items() if value is not None}
        try:
            async with asyncio.timeout(settings.total_timeout):
                raw = await self._client.chat.completions.with_raw_response.create(
                    model=settings.model,
                    messages=list(messages),
                    stream=False,
                    extra_body=settings.extra_body,
                    **given,
                )
            return self._read(raw.parse(), raw.text, messages)
        except PlayerFailure:
            raise
        except openai.APIStatusError as error:
            failure = self._refusal(error)
        except asyncio.CancelledError:
            self._count(messages)
            raise
        except Exception as error:  # the library's own, and what it does not expect of an endpoint
            self._count(messages)
            cause = error.__cause__ or error
            late = isinstance(error, TimeoutError | openai.APITimeoutError)
            if late and not type(cause).__name__.startswith("Connect"):
                within = settings.total_timeout if isinstance(error, TimeoutError) else settings.timeout
                failure = Busy(f"{settings.model}: no answer within {within:g} s")
                failure.again = not isinstance(error, TimeoutError)
            else:
                said = self._words(f"{type(cause).__name__}: {cause}")
                failure = PlayerFailure(f"{settings.model}: {settings.base_url}: {said}; check base_url")
        raise failure  # outside of except: its context might show the key

    def _read(self, answer: Any, body: str, messages: Sequence[dict[str, str]]) -> Response:
        """A response: any field of ``answer`` may be missing or of another type."""
        text, truncated = None, False
        try:
            truncated = answer.choices[0].finish_reason == "length"
            text = answer.choices[0].message.content
        except (AttributeError, LookupError, TypeError):
            pass
        if text is None and truncated:
            text = ""  # hidden reasoning has taken all there was: that is the model's own doing
        usage = self._count(messages, text if isinstance(text, str) else "", getattr(answer, "usage", None))
        if not isinstance(text, str) or not (text.strip() or truncated):
            raise PlayerFailure(f"{self.settings.model}: the answer has no text: {self._words(body)}")
        # Half of a surrogate pair is valid in JSON, and cannot be written to a file of records.
        text = self._without_key(text.encode("utf-8", "replace").decode())
        longest = _CHARACTERS_PER_TOKEN * (self.settings.max_tokens or _LONGEST_RESPONSE)
        return Response(text[:longest], truncated=truncated or len(text) > longest, usage=asdict(usage))

    def _count(self, messages: Sequence[dict[str, str]], text: str = "", said: Any = None) -> Usage:
        """Count by the endpoint's two numbers, or else by the texts' lengths: a token is about four bytes of English,
        and a message's frame some tokens more."""
        counts = getattr(said, "prompt_tokens", 0), getattr(said, "completion_tokens", 0)
        estimated = not all(type(count) is int and 0 < count < _TOO_MANY for count in counts)
        if estimated:
            counts = sum(_tokens(message["content"]) + 4 for message in messages), _tokens(text)
        usage = Usage(*counts, self.settings.cost(*counts), estimated)
        self.count(usage)
        return usage

    def _refusal(self, error: Any) -> PlayerFailure:
        status, fields, settings = error.status_code, error.body, self.settings
        said = fields.get("message") if isinstance(fields, dict) else None
        words = f"{settings.model}: HTTP {status}: {self._words(str(said or error.response.text))}"
        if status == 402 or "insufficient_quota" in (error.code, error.type):
            return Unpaid(words)
        if status in (408, 409, 429) or status >= 500:
            return Busy(words)
        if status in (401, 403, 404) or status < 400:
            words += f"; check api_key_env={settings.api_key_env}, model and base_url={settings.base_url}"
        return PlayerFailure(words)

    def _words(self, text: str) -> str:
        """One line of an endpoint's words. (The key goes first: a cut might leave half of it.)"""
        return visible(" ".join(self._without_key(text).split()), _LONGEST_WORDS, 1)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if len(self._key) >= _SHORTEST_KEY else text


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 4)


def _load_openai() -> Any:
    """The client library. Its import takes a second: it is for the beginning, not for the first game."""
    if importlib.util.find_spec("openai") is None:
        raise ImportError(f"opponents behind an API need the openai package: {install('api')}")
    import openai

    for library in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
        logging.getLogger(library).setLevel(logging.WARNING)  # below, they log an endpoint's headers, as they come
    return openai
