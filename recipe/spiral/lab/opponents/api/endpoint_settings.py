"""The settings of an opponent behind an endpoint, and what can be wrong with them before anything is asked."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from ....players.player import PlayerMisconfigured
from ....players.prompts import TEMPLATES, Template, get_template
from ....players.records import Usage

#: How it is asked and what it may cost: settings that change no answer.
OF_ASKING = frozenset(
    (
        *("api_key_env", "timeout", "total_timeout", "retries", "backoff", "max_backoff", "max_retry_after"),
        *("max_concurrency", "budget_tokens", "budget_usd", "price_in", "price_out"),
    )
)
#: Tokens of the longest response where no setting limits it.
_LONGEST_RESPONSE = 2**16
#: No text has more bytes than this for each token.
_BYTES_PER_TOKEN = 16


@dataclass(frozen=True)
class Limit:
    """What may be spent: tokens read and written, and US dollars; None is no limit."""

    tokens: int | None = None
    usd: float | None = None

    def reached(self, spent: Usage) -> bool:
        return (self.tokens is not None and spent.tokens >= self.tokens) or (
            self.usd is not None and (spent.cost or 0.0) >= self.usd
        )

    def __str__(self) -> str:
        tokens = [] if self.tokens is None else [f"{self.tokens} tokens"]
        return " or ".join(tokens if self.usd is None else [*tokens, f"${self.usd:g}"])


@dataclass(frozen=True)
class ApiSettings:
    """An OpenAI-compatible endpoint and how to use it. All times are in seconds. It holds no secret.

    Attributes:
        model: the endpoint's name of the model.
        base_url: where the endpoint is, up to and without ``/chat/completions``.
        api_key_env: the name of the environment variable that holds the key; None: the endpoint wants none.
        template: of ``prompts``; one for chats that does not begin the response, which these endpoints cannot.
        temperature: None leaves it to the endpoint.
        max_tokens: the longest response; None leaves it to the endpoint. (Some want another name for it: set this to
            None, and ``extra_body={"max_completion_tokens": ...}``.)
        send_seed: whether the game's seed goes with each request. Few endpoints promise to repeat themselves for it.
        extra_body: further fields of the request.
        timeout: for one request, the reading of its answer included.
        total_timeout: for one response, with all its requests and the pauses between them. Waiting for one of the
            ``max_concurrency`` places does not count: it ends, because whoever has a place is bound by this.
        retries: how often a request is repeated after a failure that may pass.
        backoff: the pause before the first repetition; it doubles each time, up to ``max_backoff``, and up to half of
            it is taken off at random.
        max_backoff: the longest pause.
        max_retry_after: the longest pause that an endpoint may ask for (Retry-After); a longer one is cut.
        max_concurrency: responses that are awaited at a time, by one player in one process.
        budget_tokens: what the player may spend in all, read and written.
        budget_usd: the same in US dollars; needs prices.
        price_in: US dollars for a million tokens read.
        price_out: US dollars for a million tokens written.

    Raises:
        ValueError: an impossible setting.
    """

    model: str
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str | None = "OPENAI_API_KEY"
    template: str = "qwen3"
    temperature: float | None = 1.0
    max_tokens: int | None = 4096
    send_seed: bool = True
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    timeout: float = 60.0
    total_timeout: float = 180.0
    retries: int = 4
    backoff: float = 0.5
    max_backoff: float = 20.0
    max_retry_after: float = 60.0
    max_concurrency: int = 8
    budget_tokens: int | None = None
    budget_usd: float | None = None
    price_in: float | None = None
    price_out: float | None = None

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> ApiSettings:
        """From a config's mapping; an unknown setting, or no model, is a ``ValueError``, too."""
        known = [entry.name for entry in fields(cls)]
        if unknown := sorted(map(str, settings.keys() - {*known})):
            raise ValueError(f"{', '.join(unknown)}: unknown; known settings: {', '.join(known)}")
        if "model" not in settings:
            raise ValueError("model is not set: give the endpoint's name of the model")
        return cls(**{str(name): _plain(value) for name, value in settings.items()})

    def __post_init__(self) -> None:
        _require(isinstance(self.model, str) and bool(self.model.strip()), f"model={self.model!r}: must be a name")
        # What is wrong with the next three is not shown: a password may stand there, or the key itself.
        _require(
            _is_address(self.base_url),
            "base_url: must be an http(s) address without user name, password or query, such as "
            "https://api.openai.com/v1",
        )
        key = self.api_key_env
        _require(
            key is None or (isinstance(key, str) and key.isidentifier()),
            "api_key_env: must be the name of an environment variable (never the key itself), or null for no key",
        )
        _require(isinstance(self.extra_body, Mapping), "extra_body: must be a mapping")
        _chat_template(self.template)
        _require(isinstance(self.send_seed, bool), f"send_seed={self.send_seed!r}: must be true or false")
        for name in ("timeout", "total_timeout", "max_retry_after", "backoff", "max_backoff"):
            self._number(name, least=0.0, above=name.endswith("timeout"))
        for name in ("temperature", "budget_usd", "price_in", "price_out"):
            self._number(name, least=0.0, optional=True)
        self._number("retries", least=0, whole=True)
        self._number("max_concurrency", least=1, whole=True)
        self._number("max_tokens", least=1, whole=True, optional=True)
        self._number("budget_tokens", least=0, whole=True, optional=True)
        _require(
            self.budget_usd is None or None not in (self.price_in, self.price_out),
            f"budget_usd={self.budget_usd}: needs price_in and price_out, in US dollars for a million tokens",
        )

    def _number(
        self, name: str, least: float, above: bool = False, whole: bool = False, optional: bool = False
    ) -> None:
        value = getattr(self, name)
        if value is None and optional:
            return
        number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        fits = number and math.isfinite(value) and (value > least if above else value >= least)
        bound = f"above {least:g}" if above else f"of at least {least:g}"
        _require(fits, f"{name}={value!r}: must be a {'whole ' * whole}number {bound}{', or null' * optional}")

    @property
    def limit(self) -> Limit:
        return Limit(self.budget_tokens, self.budget_usd)

    @property
    def longest_response(self) -> int:
        """Tokens, hidden reasoning included."""
        limits = [self.max_tokens, *map(self.extra_body.get, ("max_tokens", "max_completion_tokens"))]
        return max((limit for limit in limits if isinstance(limit, int) and limit > 0), default=_LONGEST_RESPONSE)

    @property
    def longest_text(self) -> int:
        """Bytes of a response."""
        return _BYTES_PER_TOKEN * self.longest_response

    def chat_template(self) -> Template:
        return _chat_template(self.template)

    def key(self) -> str | None:
        """The key, from the environment, or ``PlayerMisconfigured``; None where the endpoint wants none."""
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise PlayerMisconfigured(
                f"the environment variable {self.api_key_env} (api_key_env) is not set: it must hold the key of "
                f"{self.base_url}; for an endpoint without one set api_key_env to null"
            )
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise PlayerMisconfigured(
                f"the environment variable {self.api_key_env} (api_key_env) holds characters that no key has"
            )
        return key

    def cost(self, prompt_tokens: int, response_tokens: int) -> float | None:
        """In US dollars; None where a price is not known."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + response_tokens * self.price_out) / 1e6


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def _is_address(url: object) -> bool:
    if not isinstance(url, str) or any(map(str.isspace, url)):
        return False
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return whole and "@" not in parts.netloc and not parts.query and not parts.fragment


def _chat_template(name: str) -> Template:
    template = get_template(name, "template")
    usable = [each for each in TEMPLATES.values() if not (each.plain or each.begin or each.name.endswith("_general"))]
    names = ", ".join(sorted(each.name for each in usable))
    _require(template in usable, f"template={name!r}: does not go with a chat endpoint; take one of {names}")
    return template


def _plain(value: Any) -> Any:
    """A config's own mappings and lists as dicts and lists, which become JSON."""
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(entry) for entry in value]
    return value
