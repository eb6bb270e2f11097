"""An agent loop that asks the policy's engine: what games and questions have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from verl.experimental.agent_loop.agent_loop import AgentLoopBase

from ..players.policy import Generation
from . import pace
from .end_tokens import end_tokens


class PolicyLoop(AgentLoopBase):
    """verl's agent loop, with a response of the policy's for a prompt."""

    async def _generate(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> Generation:
        """One response from the policy's engine."""
        output = await self.server_manager.generate(**self._request(prompt_ids, sampling))
        versions = (output.extra_fields["min_global_steps"], output.extra_fields["max_global_steps"])
        return self._generation(output, self._limit(sampling), versions, None)

    def _request(self, prompt_ids: list[int], sampling: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "request_id": f"turn-{sampling['seed']}",
            "prompt_ids": prompt_ids,
            "sampling_params": {**sampling, "max_tokens": self._limit(sampling)},
        }

    def _generation(
        self, output: Any, limit: int, weight_versions: tuple[int, int] | None, answered_by: str | None
    ) -> Generation:
        """An engine's response.

        Raises:
            RuntimeError: it has no tokens.
        """
        pace.answered(output.extra_fields)
        token_ids = list(output.token_ids)
        if not token_ids:
            raise RuntimeError(f"the engine returned no tokens (stop reason: {output.stop_reason})")
        # verl reports "completed" for both ways of termination: a response that ends in an end token is not truncated.
        truncated = len(token_ids) >= limit and token_ids[-1] not in self._end_tokens
        return Generation(token_ids, output.log_probs, truncated, weight_versions, answered_by)

    def _decode(self, token_ids: Sequence[int]) -> str:
        """A response's text. transformers looks at each number of a list by itself, and takes an array as it is."""
        return str(self.tokenizer.decode(np.asarray(token_ids, dtype=np.int64), skip_special_tokens=True))

    def _limit(self, sampling: Mapping[str, Any]) -> int:
        """How many tokens a response may have: verl's limit, or a lower one of its own."""
        return min(self._longest, int(sampling.get("max_tokens") or self._longest))

    # Looking into the config takes as long as the rest of a turn.

    @cached_property
    def _longest(self) -> int:
        return int(self.rollout_config.response_length)

    @cached_property
    def _end_tokens(self) -> frozenset[int]:
        return end_tokens(self.config.actor_rollout_ref.model.path, self.tokenizer.eos_token_id)
