"""The client of the asynchronous modes, whose responses go on where an update of the weights broke them off.

verl asks again with the prompt and what was written so far, and with the same seed: vLLM would then draw the rest of
the response with the random numbers that drew its beginning. Here each part has a seed of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from ...play.seeds import derive_seed

#: The length of the prompt of the response that is being put together, in tokens.
_prompt: ContextVar[int] = ContextVar("spiral_prompt_length")


class _Parts(LLMServerClient):
    """verl's client for one part of a response."""

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        written, sampling = len(prompt_ids) - _prompt.get(len(prompt_ids)), dict(sampling_params)
        if written and sampling.get("seed") is not None:
            sampling["seed"] = derive_seed(int(sampling["seed"]), "from token", written)
        return await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling, **kwargs)


class ResumingClient(FullyAsyncLLMServerClient, _Parts):
    """verl's client that puts a response together; the parts come from ``_Parts``, which is next to it in the order of
    classes."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> TokenOutput:
        token = _prompt.set(len(prompt_ids))
        try:
            return await super().generate(request_id, prompt_ids=prompt_ids, **kwargs)
        finally:
            _prompt.reset(token)


def with_own_seeds(client: LLMServerClient) -> LLMServerClient:
    """The same client, whose parts have seeds of their own where it puts responses together."""
    if type(client) is not FullyAsyncLLMServerClient:
        return client
    return ResumingClient(client.config, client._load_balancer, client._only_hybrid)
