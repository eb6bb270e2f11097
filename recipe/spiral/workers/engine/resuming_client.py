"""The client of the asynchronous modes, whose responses go on where an update of the weights broke them off.

verl asks again with the prompt and what was written so far, and with the same seed: vLLM would then draw the rest of
the response with the random numbers that drew its beginning. Here each part has a seed of its own. The response says
the versions of the weights that wrote a token: verl counts a part that was broken off before its first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient
from verl.workers.rollout.replica import TokenOutput

from ...players.seeds import derive_seed
from .game_client import GameClient


@dataclass
class _Response:
    """A response that is being put together."""

    #: Tokens.
    prompt: int
    #: Of the weights, for each part that has tokens.
    versions: list[int | None] = field(default_factory=list)


class Parts(GameClient):
    """The client for one part of a response."""

    whole = False

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """``response``, among the ``kwargs``, is what the part is of."""
        sampling, response = dict(sampling_params), kwargs.pop("response")
        written = len(prompt_ids) - response.prompt
        if written and sampling.get("seed") is not None:
            sampling["seed"] = derive_seed(int(sampling["seed"]), "from token", written)
        output = await super().generate(request_id, prompt_ids=prompt_ids, sampling_params=sampling, **kwargs)
        if output.token_ids:
            response.versions.append(output.extra_fields.get("global_steps"))
        return output


class ResumingClient(FullyAsyncLLMServerClient, Parts):
    """verl's client that puts a response together; the parts come from ``Parts``, which is next to it in the order of
    classes, and gets what verl's client does not know."""

    async def generate(self, request_id: str, *, prompt_ids: list[int], **kwargs: Any) -> TokenOutput:
        response = _Response(len(prompt_ids))
        output = await super().generate(request_id, prompt_ids=prompt_ids, response=response, **kwargs)
        if response.versions:
            first, last = response.versions[0], response.versions[-1]
            output.extra_fields |= {"min_global_steps": first, "max_global_steps": last}
        return output
