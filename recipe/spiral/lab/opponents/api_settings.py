"""The settings of an opponent behind an endpoint, and what can be wrong with them before anything is asked."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import urlsplit

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ...config import out_of_range, within
from ...players.player import PlayerMisconfigured
from ...players.prompts import Template, get_template
from ...processes.composing import as_written

#: The kind of an endpoint, which may be paid for.
API = "api"
#: How it is asked and what it may cost: settings that change no answer.
OF_ASKING = {
    *("api_key_env", "timeout", "total_timeout", "retries", "max_concurrency"),
    *("budget_tokens", "budget_usd", "price_in", "price_out"),
}
#: Seconds, the shortest and the longest.
_SECONDS = (1e-3, 86_400.0)


@dataclass(frozen=True)
class ApiSettings:
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

    model: str = MISSING
    base_url: str = "https://api.openai.com/v1"
    api_key_env: str | None = "OPENAI_API_KEY"
    template: str = "qwen3"
    temperature: float | None = within(0, default=1.0)
    max_tokens: int | None = within(1, default=4096)
    send_seed: bool = True
    extra_body: dict[str, Any] = field(default_factory=dict)
    timeout: float = within(*_SECONDS, default=60.0)
    total_timeout: float = within(*_SECONDS, default=180.0)
    retries: int = within(0, default=4)
    max_concurrency: int = within(1, default=8)
    budget_tokens: int | None = within(0, default=None)
    budget_usd: float | None = within(0, default=None)
    price_in: float | None = within(0, default=None)
    price_out: float | None = within(0, default=None)

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> ApiSettings:
        """From a config's mapping."""
        try:
            config = OmegaConf.merge(OmegaConf.structured(cls), OmegaConf.create(dict(settings)))
            for wrong in out_of_range(cast(DictConfig, config)):
                raise ValueError(wrong)
            return cast(ApiSettings, OmegaConf.to_object(config))
        except OmegaConfBaseException as error:
            raise ValueError(str(error)) from None

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise ValueError(f"model={self.model!r}: must be the endpoint's name of a model")
        url = urlsplit(self.base_url)
        if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc or url.query:
            # What is wrong is not shown: a password may stand there, as the key itself may in the next one.
            raise ValueError("base_url: must be an http(s) address without user name, password or query")
        if self.api_key_env is not None and not self.api_key_env.isidentifier():
            raise ValueError("api_key_env: must be the name of an environment variable that holds the key, or null")
        template = self.chat_template()
        if template.plain or template.name.endswith("_general"):
            raise ValueError(f"template={self.template!r}: does not go with a chat endpoint")
        if self.budget_usd is not None and None in (self.price_in, self.price_out):
            raise ValueError(f"budget_usd={self.budget_usd}: needs price_in and price_out")

    def chat_template(self) -> Template:
        return get_template(self.template, "template")

    def key(self) -> str | None:
        """The key, from the environment, or ``PlayerMisconfigured``; None where the endpoint wants none."""
        if self.api_key_env is None:
            return None
        if not (key := os.environ.get(self.api_key_env, "").strip()):
            raise PlayerMisconfigured(
                f"api_key_env={self.api_key_env}: is not set; it must hold the key of {self.base_url} (null: no key)"
            )
        return key

    def cost(self, prompt_tokens: int, response_tokens: int) -> float | None:
        """In US dollars; None where a price is not known."""
        if self.price_in is None or self.price_out is None:
            return None
        return (prompt_tokens * self.price_in + response_tokens * self.price_out) / 1e6


def refuse_environment(config: Any, setting: str) -> None:
    """Refuse values of the environment in those entries of a list of the config's that are endpoints: verl's own print
    and trackers would show them. Raises ValueError."""
    for entry in as_written(config)[setting] or ():
        if isinstance(entry, dict) and entry.get("kind") == API and "${oc.env:" in str(entry):
            raise ValueError(
                f"{setting}: {entry.get('name', API)}: a value of the environment would be shown; name a key by its "
                "variable: api_key_env: NAME"
            )
