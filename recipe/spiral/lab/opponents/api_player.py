"""A language model behind an OpenAI-compatible endpoint, as a player, and what it is asked before a run.

The openai library repeats requests, and bounds each; all of a response's requests end within one time.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import urlsplit

from ...extras import install
from ...players.player import PlayerFailure, PlayerMisconfigured, Position, Response
from ...processes.terminal import visible
from .api_costs import Costs, Usage
from .api_settings import ApiSettings

#: Seconds for a connection, within those for a request; and for which an endpoint is left alone.
_CONNECT, _PAUSE = 4.0, 60.0
#: Where an endpoint's words are cut, in characters.
_LONGEST_WORDS = 300
#: No text has more characters than this for each token; tokens of the longest response where no setting limits it.
_CHARACTERS_PER_TOKEN, _LONGEST_RESPONSE = 16, 2**16
#: No count of tokens is as high.
_TOO_MANY = 10**12
#: A shorter key may be a word of an answer.
_SHORTEST_KEY = 8
#: The only headers that endpoints other than OpenAI's get. The library adds those of OPENAI_CUSTOM_HEADERS,
#: OPENAI_ORG_ID and OPENAI_PROJECT_ID, which may belong to another service; it reads its own (x-stainless) again.
_HEADERS = ("host", "accept", "connection", "content-", "user-agent", "x-stainless-")
#: Seconds for an answer before a run. A model may think for longer: then it is there.
_FIRST_ANSWER = 6.0
_FIRST_QUESTION = "This is a test of the connection, no game. Your only legal action: '[ok]'."


class Busy(PlayerFailure):
    """Somebody is there, who has no time now."""


class NotAsked(PlayerFailure):
    """The endpoint is not asked any more, before somebody pays or raises the budget, or some time has passed."""

    again = False


class ApiPlayer:
    """Asks an endpoint for each turn, with the present observation alone. One player serves all games of a process,
    in one event loop.

    A failing or slow endpoint costs its own games only: every response is bounded by ``total_timeout`` once it has its
    place. One that fails again and again, or wants to be paid, is left alone for a while, so that a dead one does not
    take that time for each of its games.

    Attributes:
        settings: the endpoint and how to use it.
        name: for records and metrics.
        costs: what all responses have used. Those under way when the budget is reached are finished.
        patience: the number of responses that may fail one after the other: those of two rounds.
    """

    def __init__(self, settings: ApiSettings, name: str = "api", costs: Costs | None = None) -> None:
        """
        Raises:
            ImportError: the openai package is not installed.
            PlayerMisconfigured: the environment has no key.
        """
        self.settings, self.name, self.costs = settings, name, costs or Costs()
        self.patience = 2 * settings.max_concurrency
        self._failures, self._last_failure, self._asked_again = 0, "", 0.0  # in a row
        self._key = settings.key() or "none"
        self._places = asyncio.Semaphore(settings.max_concurrency)
        self._client = self._connected()  # now: the library's import takes a second

    async def respond(self, position: Position) -> Response:
        """The model's answer to the observation, with what it used.

        Raises:
            NotAsked: the budget is spent, or the endpoint has failed too often.
            PlayerFailure: the endpoint gives no answer.
        """
        # 31 bits: not every endpoint reads longer numbers.
        seed = position.key.seed("api player", position.player, position.turn) >> 32
        async with self._places:
            self._check()
            try:
                response = await self.ask(position.observation, seed)
            except PlayerFailure as failure:
                self._failures += self.patience if isinstance(failure, NotAsked) else 1
                self._last_failure, self._asked_again = str(failure), time.monotonic() + _PAUSE
                raise
        self._failures = 0
        return response

    async def ask(self, observation: str, seed: int) -> Response:
        """The endpoint's answer, within ``total_timeout`` and the number of retries, or a ``PlayerFailure``.

        Without an answer it is counted by its prompt, for which an endpoint may charge, unless that was an error.
        """
        settings = self.settings
        messages = settings.chat_template().messages(observation)
        sampling = {"temperature": settings.temperature, "max_tokens": settings.max_tokens}
        sampling["seed"] = seed if settings.send_seed else None
        given = {name: value for name, value in sampling.items() if value is not None}
        try:
            async with asyncio.timeout(settings.total_timeout):
                answer = await self._client.chat.completions.create(
                    model=settings.model, messages=messages, stream=False, extra_body=settings.extra_body, **given
                )
        except asyncio.CancelledError:
            self._count(messages)
            raise
        except Exception as error:  # the library's own, and what it does not expect of an endpoint
            failure = self._failure(error, messages)
        else:
            return self._read(answer, messages)
        raise failure  # outside of except: its context might show the key

    def _connected(self) -> Any:
        """The library's client."""
        if importlib.util.find_spec("openai") is None:
            raise ImportError(f"opponents behind an API need the openai package: {install('api')}")
        import openai

        for library in ("openai", "httpx", "httpx2", "httpcore", "httpcore2"):
            logging.getLogger(library).setLevel(logging.WARNING)  # below, they log an endpoint's headers, as they come
        settings = self.settings
        others = urlsplit(settings.base_url).hostname != "api.openai.com"
        authorization = f"Bearer {self._key}"

        async def keep_ours(request: Any) -> None:
            for name in list(request.headers) if others else ():
                if not name.startswith(_HEADERS):
                    del request.headers[name]
            request.headers["Authorization"] = authorization

        return openai.AsyncOpenAI(
            api_key=self._key,
            base_url=settings.base_url,
            timeout=openai.Timeout(settings.timeout, connect=min(settings.timeout, _CONNECT)),
            max_retries=settings.retries,
            # No endpoint decides where a request, and the key in it, goes.
            http_client=openai.DefaultAsyncHttpxClient(follow_redirects=False, event_hooks={"request": [keep_ours]}),
        )

    def _check(self) -> None:
        """That the endpoint may be asked now."""
        settings, (tokens, dollars) = self.settings, self.costs.of(self.name)
        if settings.budget_tokens is not None and tokens >= settings.budget_tokens:
            raise NotAsked(f"{self.name}: budget_tokens={settings.budget_tokens} is spent: {tokens} tokens")
        if settings.budget_usd is not None and dollars >= settings.budget_usd:
            raise NotAsked(f"{self.name}: budget_usd={settings.budget_usd:g} is spent: ${dollars:.4f}")
        if self._failures >= self.patience:
            if time.monotonic() < self._asked_again:
                raise NotAsked(f"{self.name}: it is left alone after failures in a row, the last: {self._last_failure}")
            self._failures = self.patience - 1  # the first failure leaves it alone again

    def _read(self, answer: Any, messages: Sequence[dict[str, str]]) -> Response:
        """A response: any field of ``answer`` may be missing or of another type."""
        said, truncated = None, False
        with suppress(AttributeError, LookupError, TypeError):
            truncated = answer.choices[0].finish_reason == "length"
            said = answer.choices[0].message.content
        text = said if isinstance(said, str) else ""
        usage = self._count(messages, text, getattr(answer, "usage", None))
        # Cut off before the text, hidden reasoning has taken all there was: that is the model's own doing.
        if not text.strip() and not truncated:
            raise PlayerFailure(f"{self.settings.model}: the answer has no text: {self._words(str(answer))}")
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
        self.costs.add(self.name, usage)
        return usage

    def _failure(self, error: Any, messages: Sequence[dict[str, str]]) -> PlayerFailure:
        """What an error is to a game."""
        import openai  # there is a client: it is installed

        settings, cause = self.settings, error.__cause__ or error
        if isinstance(error, openai.APIStatusError):
            status, fields = error.status_code, error.body
            said = fields.get("message") if isinstance(fields, dict) else None
            words = f"{settings.model}: HTTP {status}: {self._words(str(said or error.response.text))}"
            if status == 402 or "insufficient_quota" in (error.code, error.type):
                return NotAsked(words)
            if status in (408, 409, 429) or status >= 500:
                return Busy(words)
            if status in (401, 403, 404) or status < 400:
                words += f"; check api_key_env={settings.api_key_env}, model and base_url={settings.base_url}"
            return PlayerFailure(words)
        self._count(messages)
        all_of_it = isinstance(error, TimeoutError)
        if isinstance(error, TimeoutError | openai.APITimeoutError) and not type(cause).__name__.startswith("Connect"):
            within = settings.total_timeout if all_of_it else settings.timeout
            late = Busy(f"{settings.model}: no answer within {within:g} s")
            late.again = not all_of_it
            return late
        said = self._words(f"{type(cause).__name__}: {cause}")
        return PlayerFailure(f"{settings.model}: {settings.base_url}: {said}; check base_url")

    def _words(self, text: str) -> str:
        """One line of an endpoint's words. (The key goes first: a cut might leave half of it.)"""
        return visible(" ".join(self._without_key(text).split()), _LONGEST_WORDS, 1)

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***") if len(self._key) >= _SHORTEST_KEY else text


def ask_once(endpoints: Mapping[str, ApiSettings], say: Callable[[str], None] = print) -> None:
    """Ask endpoints, at the same time, for what a game would ask: a wrong key, an unknown model or an address where
    nobody is costs seconds now, and the games of some steps later.

    ``endpoints`` are by what messages call each. ``say`` shows people a line about one that is there and has no answer
    now. A ``PlayerMisconfigured`` names one that would not answer games, an ``ImportError`` a package that is missing.
    """

    async def ask(name: str, settings: ApiSettings) -> None:
        within = min(settings.timeout, _FIRST_ANSWER)
        player = ApiPlayer(replace(settings, timeout=within, total_timeout=within, retries=0))
        try:
            await player.ask(_FIRST_QUESTION, 0)
        except Busy as late:
            say(f"{name}: {late}; the run goes on, and asks it again in its games")
        except PlayerFailure as error:
            raise PlayerMisconfigured(f"{name}: {error}") from None

    async def ask_all() -> None:
        await asyncio.gather(*(ask(name, settings) for name, settings in endpoints.items()))

    # Unlike asyncio.run, its end waits for no look-up of a host's name.
    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(ask_all())


def _tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // 4)
