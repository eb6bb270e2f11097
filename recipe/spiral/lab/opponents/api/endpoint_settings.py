"""The settings of an opponent behind an endpoint, and what can be wrong with them before anything is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from omegaconf import OmegaConf
from pydantic import ConfigDict, Field, StringConstraints, model_validator

from ....players.player import PlayerMisconfigured
from ....players.prompts import Template, get_template
from ...parsing import Count, Number, Section, checked, parse

#: How it is asked and what it may cost: settings that change no answer.
OF_ASKING = frozenset(
    (
        *("api_key_env", "timeout", "total_timeout", "retries", "max_concurrency"),
        *("budget_tokens", "budget_usd", "price_in", "price_out"),
    )
)
_Positive = Annotated[Number, Field(gt=0)]
_NotNegative = Annotated[Number, Field(ge=0)]
_Whole = Annotated[int, Field(strict=True, ge=0)]


def _check_address(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        # What is wrong is not shown: a password may stand there, as the key itself may in the next one.
        raise ValueError("must be an http(s) address without user name, password or query")


def _check_variable(name: str) -> None:
    if not name.isidentifier():
        raise ValueError("must be the name of an environment variable (never the key itself), or null for no key")


def _chat_template(name: str) -> Template:
    template = get_template(name, "template")
    if template.plain or template.name.endswith("_general"):
        raise ValueError(f"template={name!r}: does not go with a chat endpoint")
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
        timeout: of one request, for each part of its answer.
        total_timeout: for one response, with all its requests and the pauses between them. Waiting for one of the
            ``max_concurrency`` places does not count: it ends, because whoever has a place is bound by this.
        retries: how often the openai library repeats a request after a failure that may pass.
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

    def chat_template(self) -> Template:
        return _chat_template(self.template)

    def key(self) -> str | None:
        """The key, from the environment, or ``PlayerMisconfigured``; None where the endpoint wants none."""
        if self.api_key_env is None:
            return None
        if not (key := os.environ.get(self.api_key_env, "").strip()):
            raise PlayerMisconfigured(
                f"api_key_env={self.api_key_env}: this environment variable is not set; it must hold the key of "
                f"{self.base_url}; without one, set api_key_env to null"
            )
        return key

    def cost(self, prompt_tokens: int, response_tokens: int) -> float | None:
        """In US dollars; None where a price is not known."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + response_tokens * self.price_out) / 1e6
