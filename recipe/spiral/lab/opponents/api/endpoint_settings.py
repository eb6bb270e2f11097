"""The settings of an opponent behind an endpoint, and what can be wrong with them before anything is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from omegaconf import OmegaConf
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from ....players.player import PlayerMisconfigured
from ....players.prompts import TEMPLATES, Template, get_template
from ...parsing import Count, Number, Section, checked, parse
from .usage import Usage

#: How it is asked and what it may cost: settings that change no answer.
OF_ASKING = frozenset(
    (
        *("api_key_env", "timeout", "total_timeout", "retries", "backoff", "max_backoff"),
        *("max_concurrency", "budget_tokens", "budget_usd", "price_in", "price_out"),
    )
)
_Positive = Annotated[Number, Field(gt=0)]
_NotNegative = Annotated[Number, Field(ge=0)]
_Whole = Annotated[int, Field(strict=True, ge=0)]
#: Tokens of the longest response where no setting limits it.
_LONGEST_RESPONSE = 2**16
#: No text has more bytes than this for each token.
_BYTES_PER_TOKEN = 16
#: Characters of a key. A shorter one may be a word of an answer, and could not be taken out of what is written.
_SHORTEST_KEY = 8


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


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        whole = False
    if not whole or "@" in parts.netloc or parts.query or parts.fragment or any(map(str.isspace, url)):
        # What is wrong is not shown: a password may stand there, as the key itself may in the next one.
        raise ValueError(
            "must be an http(s) address without user name, password or query, such as https://api.openai.com/v1"
        )


def _check_variable(name: str) -> None:
    if not name.isidentifier():
        raise ValueError("must be the name of an environment variable (never the key itself), or null for no key")


def _chat_template(name: str) -> Template:
    template = get_template(name, "template")
    usable = [each for each in TEMPLATES.values() if not (each.plain or each.name.endswith("_general"))]
    if template not in usable:
        names = ", ".join(sorted(each.name for each in usable))
        raise ValueError(f"template={name!r}: does not go with a chat endpoint; take one of {names}")
    return template


class ApiSettings(Section):
    """An OpenAI-compatible endpoint and how to use it. All times are in seconds. It holds no secret.

    Attributes:
        model: the endpoint's name of the model.
        base_url: where the endpoint is, up to and without ``/chat/completions``.
        api_key_env: the name of the environment variable that holds the key; None: the endpoint wants none.
        template: of ``prompts``; one for chats.
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
            it is taken off at random. An endpoint may ask for another one (Retry-After).
        max_backoff: the longest pause.
        max_concurrency: responses that are awaited at a time, by one player in one process.
        budget_tokens: what the player may spend in all, read and written.
        budget_usd: the same in US dollars; needs prices.
        price_in: US dollars for a million tokens read.
        price_out: US dollars for a million tokens written.

    Raises:
        ValueError: an impossible setting.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    model: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    base_url: Annotated[str, checked(_check_address)] = "https://api.openai.com/v1"
    api_key_env: Annotated[str, checked(_check_variable)] | None = "OPENAI_API_KEY"
    template: Annotated[str, checked(_chat_template)] = "qwen3"
    temperature: _NotNegative | None = 1.0
    max_tokens: Count | None = 4096
    send_seed: Annotated[bool, Field(strict=True)] = True
    extra_body: Mapping[str, Any] = Field(default_factory=dict)
    timeout: _Positive = 60.0
    total_timeout: _Positive = 180.0
    retries: _Whole = 4
    backoff: _NotNegative = 0.5
    max_backoff: _NotNegative = 20.0
    max_concurrency: Count = 8
    budget_tokens: _Whole | None = None
    budget_usd: _NotNegative | None = None
    price_in: _NotNegative | None = None
    price_out: _NotNegative | None = None

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> ApiSettings:
        """From a config's mapping, whose own mappings and lists become such as JSON takes."""
        plain = {
            str(name): OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
            for name, value in settings.items()
        }
        return parse(cls, plain)

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.budget_usd is not None and None in (self.price_in, self.price_out):
            raise ValueError(
                f"budget_usd={self.budget_usd}: needs price_in and price_out, in US dollars for a million tokens"
            )
        return self

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
            wrong = f"is not set: it must hold the key of {self.base_url}; without one, set api_key_env to null"
        elif not (key.isascii() and key.isprintable() and " " not in key):
            wrong = "holds characters that no key has"
        elif len(key) < _SHORTEST_KEY:
            needless = "if the endpoint takes any, set api_key_env to null"
            wrong = f"holds a key of less than {_SHORTEST_KEY} characters, which cannot be kept out of logs; {needless}"
        else:
            return key
        raise PlayerMisconfigured(f"the environment variable {self.api_key_env} (api_key_env) {wrong}")

    def cost(self, prompt_tokens: int, response_tokens: int) -> float | None:
        """In US dollars; None where a price is not known."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + response_tokens * self.price_out) / 1e6
