"""What the agent loops generate with: the policy's client, and one more method for its opponents."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from verl.workers.rollout.replica import TokenOutput

from .batching import Servers
from .direct import DirectClient

#: How often a response is asked for again when the engine aborts it, as the asynchronous modes do while they train.
ATTEMPTS = 6 * 3600
#: Seconds between two of them.
PAUSE = 1.0


class WrongWeights(RuntimeError):
    """An answer came from other weights than those that were asked."""


class TableClient:
    """The policy's client, with opponents; it is pickled into each rollout worker.

    It passes everything else that verl reads, calls or sets to that client.

    Args:
        policy: the policy's client.
        slots: the opponents' servers with full weights, by slot; empty where opponents are LoRA adapters on the
            policy's own servers.
    """

    def __init__(self, policy: DirectClient, slots: Sequence[Any] = ()) -> None:
        vars(self).update(_policy=policy, _slots=Servers(slots))

    async def generate_as(
        self,
        name: str,
        slot: int | None,
        request_id: str,
        prompt_ids: list[int],
        sampling_params: Mapping[str, Any],
    ) -> TokenOutput:
        """One response of an opponent. It says in ``extra_fields["answered_by"]`` which weights gave it.

        Args:
            name: whose weights are to answer: a member that was loaded under this name, or ``BASE``.
            slot: the server that has them; None: an adapter on the policy's servers.
            request_id: as for ``generate``.
            prompt_ids: the prompt.
            sampling_params: vLLM's, with ``max_tokens``.

        Raises:
            WrongWeights: other weights answered.
            RuntimeError: the slot is empty, the adapter is not loaded, or the engine broke off every attempt.
        """
        for _ in range(ATTEMPTS):
            output = await self._ask(name, slot, request_id, list(prompt_ids), dict(sampling_params))
            if output.stop_reason not in ("aborted", "abort"):
                break
            await asyncio.sleep(PAUSE)
        else:
            raise RuntimeError(f"the engine broke off each of {ATTEMPTS} attempts at a response of {name}")
        answered_by = output.extra_fields.get("answered_by")
        if answered_by != name:
            raise WrongWeights(f"{name} was asked for a response, and {answered_by} answered")
        return output

    async def _ask(
        self, name: str, slot: int | None, request_id: str, prompt_ids: list[int], sampling: dict[str, Any]
    ) -> TokenOutput:
        if slot is None:
            # The class's own: that of the asynchronous modes puts an answer together anew, without who gave it.
            return await DirectClient.generate(
                self._policy, request_id, prompt_ids=prompt_ids, sampling_params=sampling, adapter=name
            )
        if not 0 <= slot < len(self._slots.lines):
            raise RuntimeError(f"{name} is to play from slot {slot}, and there are {len(self._slots.lines)}")
        return await self._slots.lines[slot].generate(
            {
                "request_id": self._policy._vllm_request_id(request_id),
                "prompt_ids": prompt_ids,
                "sampling_params": sampling,
                "whole": self._policy.whole,  # otherwise a slot that goes to sleep breaks its answers off
            }
        )

    def __getattr__(self, name: str) -> Any:
        if name in ("_policy", "_slots"):  # not there yet, while this is unpickled
            raise AttributeError(name)
        return getattr(self._policy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._policy, name, value)
