"""What the agent loops generate with: verl's client, which asks the servers itself, the policy's and opponents'."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4
from zlib import crc32

from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from .calls import Line

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
        load_balancer_handle: verl's, which is not asked.
        servers: the policy's.
        slots: the opponents' servers with full weights, by slot; empty where opponents are LoRA adapters on the
            policy's own servers.

    Attributes:
        whole: whether nothing breaks a response off, so that the engine need hand it over only once.
    """

    whole = True

    def __init__(
        self,
        config: DictConfig,
        load_balancer_handle: Any = None,
        servers: Sequence[Any] = (),
        slots: Sequence[Any] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(config, load_balancer_handle, **kwargs)
        self._servers, self._slots = [*map(Line, servers)], [*map(Line, slots)]

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response of the policy's; ``kwargs`` are what else a server's ``generate`` takes."""
        return await self._ask_policy(request_id, prompt_ids=prompt_ids, sampling_params=sampling_params, **kwargs)

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
        if slot is not None and not 0 <= slot < len(self._slots):
            raise RuntimeError(f"{name} is to play from slot {slot}, and there are {len(self._slots)}")
        for _ in range(ATTEMPTS):
            asked = {"prompt_ids": prompt_ids, "sampling_params": sampling_params}
            if slot is None:
                output = await self._ask_policy(request_id, **asked, adapter=name)
            else:
                output = await self._ask(self._slots[slot], request_id, **asked)
            if output.stop_reason not in ("aborted", "abort"):
                break
            await asyncio.sleep(PAUSE)
        else:
            raise RuntimeError(f"the engine broke off each of {ATTEMPTS} attempts at a response of {name}")
        answered_by = output.extra_fields.get("answered_by")
        if answered_by != name:
            raise WrongWeights(f"{name} was asked for a response, and {answered_by} answered")
        return output

    @rollout_trace_op
    async def _ask_policy(self, request_id: str, **asked: Any) -> TokenOutput:
        """A response of the policy's server that has the fewest requests of this process.

        Of equals it is not the first: all processes would begin with that one, and leave the last ones idle.
        """
        start = crc32(request_id.encode()) % len(self._servers)
        line = min(self._servers[start:] + self._servers[:start], key=lambda line: line.under_way)
        output = await self._ask(line, request_id, **asked)
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output

    async def _ask(self, line: Line, request_id: str, **asked: Any) -> TokenOutput:
        given = {name: value for name, value in asked.items() if value is not None}
        return await line.generate({"request_id": f"{request_id}-{uuid4().hex}", "whole": self.whole, **given})
