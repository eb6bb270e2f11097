"""What the agent loops generate with: verl's client, which can also ask for opponents' responses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

#: How often a response is asked for again when the engine aborts it, as the asynchronous modes do while they train.
ATTEMPTS = 6 * 3600
#: Seconds between two of them.
PAUSE = 1.0


class WrongWeights(RuntimeError):
    """An answer came from other weights than those that were asked."""


class GameClient(LLMServerClient):
    """It is pickled into each rollout worker.

    Args:
        config: verl's whole config.
        load_balancer_handle: verl's.
        slots: the opponents' servers with full weights, by slot; empty where opponents are LoRA adapters on the
            policy's own servers.
    """

    def __init__(
        self, config: DictConfig, load_balancer_handle: Any = None, slots: Sequence[Any] = (), **kwargs: Any
    ) -> None:
        super().__init__(config, load_balancer_handle, **kwargs)
        self.slots = list(slots)

    async def generate_as(
        self, name: str, slot: int | None, request_id: str, prompt_ids: list[int], sampling_params: Mapping[str, Any]
    ) -> TokenOutput:
        """One response of an opponent. It says in ``extra_fields["answered_by"]`` which weights gave it.

        Args:
            name: whose weights are to answer: a member that was loaded under this name, or ``BASE``.
            slot: the server that has them; None: an adapter on the policy's servers.
            request_id, prompt_ids, sampling_params: as for ``generate``.

        Raises:
            WrongWeights: other weights answered.
            RuntimeError: the slot is empty, the adapter is not loaded, or the engine broke off every attempt.
        """
        if slot is not None and not 0 <= slot < len(self.slots):
            raise RuntimeError(f"{name} is to play from slot {slot}, and there are {len(self.slots)}")
        for _ in range(ATTEMPTS):
            asked = {"prompt_ids": list(prompt_ids), "sampling_params": dict(sampling_params)}
            if slot is None:
                output = await self.ask_whole(request_id, **asked, adapter=name)
            else:
                output = await self.ask_slot(slot, request_id, **asked)
            if output.stop_reason not in ("aborted", "abort"):
                break
            await asyncio.sleep(PAUSE)
        else:
            raise RuntimeError(f"the engine broke off each of {ATTEMPTS} attempts at a response of {name}")
        answered_by = output.extra_fields.get("answered_by")
        if answered_by != name:
            raise WrongWeights(f"{name} was asked for a response, and {answered_by} answered")
        return output

    async def ask_whole(self, request_id: str, **asked: Any) -> TokenOutput:
        """A response of the policy's servers in one piece: the client of the asynchronous modes puts an answer together
        anew, without who gave it."""
        return await LLMServerClient.generate(self, request_id, **asked)

    async def ask_slot(self, slot: int, request_id: str, **asked: Any) -> TokenOutput:
        """A response of an opponent's server."""
        output: TokenOutput = await self.slots[slot].generate.remote(request_id=request_id, **asked)
        return output
