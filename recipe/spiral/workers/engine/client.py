"""What the agent loops generate with: verl's client, which asks servers itself, and can ask for opponents' responses.

verl's own asks the load balancer for a server before each response, and tells it afterwards. Here each rollout worker
takes the server with the fewest of its own requests, and all requests of one moment are one call (``batching``); or it
is in a server's process, and asks that one. Where no servers are given, requests go verl's way.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from ...runtime.batching import Here, Line, Servers
from ...runtime.placement import reaches_servers

#: How often a response is asked for again when the engine aborts it, as the asynchronous modes do while they train.
ATTEMPTS = 6 * 3600
#: Seconds between two of them.
PAUSE = 1.0
#: Requests have the name of their process and a number.
_PROCESS, _requests = uuid4().hex, itertools.count()


class WrongWeights(RuntimeError):
    """An answer came from other weights than those that were asked."""


class DirectClient(LLMServerClient):
    """It is pickled into each rollout worker.

    Args:
        config: verl's whole config.
        load_balancer_handle: verl's.
        servers: the policy's servers; empty: requests go verl's way.
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
        self._servers = Servers(map(Line, servers))
        self._slots = Servers(map(Line, slots))

    @property
    def servers(self) -> list[Any]:
        """The policy's servers that it asks itself."""
        return [line.server for line in self._servers.lines]

    def stay(self, server: Any) -> None:
        """Ask for the policy's responses nobody but a server that is in this process."""
        self._servers = Servers([Here(server)])

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response, as verl's client gives it; ``kwargs`` are what else a server's ``generate`` takes."""
        asked = {"prompt_ids": prompt_ids, "sampling_params": dict(sampling_params), **kwargs}
        if self._servers.lines:
            return await self._ask(request_id, **asked)
        return await super().generate(request_id, **asked)

    @rollout_trace_op
    async def _ask(self, request_id: str, **asked: Any) -> TokenOutput:
        given = {name: value for name, value in asked.items() if value is not None}
        output = await self._servers.generate(self._request(request_id, **given))
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output

    def _vllm_request_id(self, request_id: str) -> str:
        """verl looks into the config and draws a random number each time, which takes longer than a move in a game."""
        return request_id if self._determined else f"{_PROCESS}-{next(_requests)}"

    @cached_property
    def _determined(self) -> bool:
        return bool(getattr(self.config.actor_rollout_ref.rollout, "full_determinism", False))

    def _request(self, request_id: str, **asked: Any) -> dict[str, Any]:
        return {"request_id": self._vllm_request_id(request_id), "whole": self.whole, **asked}

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
            request_id, prompt_ids, sampling_params: as for ``generate``.

        Raises:
            WrongWeights: other weights answered.
            RuntimeError: the slot is empty, the adapter is not loaded, or the engine broke off every attempt.
        """
        for _ in range(ATTEMPTS):
            asked = {"prompt_ids": list(prompt_ids), "sampling_params": dict(sampling_params)}
            output = await self._ask_opponent(name, slot, request_id, asked)
            if output.stop_reason not in ("aborted", "abort"):
                break
            await asyncio.sleep(PAUSE)
        else:
            raise RuntimeError(f"the engine broke off each of {ATTEMPTS} attempts at a response of {name}")
        answered_by = output.extra_fields.get("answered_by")
        if answered_by != name:
            raise WrongWeights(f"{name} was asked for a response, and {answered_by} answered")
        return output

    async def _ask_opponent(self, name: str, slot: int | None, request_id: str, asked: dict[str, Any]) -> TokenOutput:
        if slot is None:
            # This class's own: that of the asynchronous modes puts an answer together anew, without who gave it.
            return await DirectClient.generate(self, request_id, **asked, adapter=name)
        if not 0 <= slot < len(self._slots.lines):
            raise RuntimeError(f"{name} is to play from slot {slot}, and there are {len(self._slots.lines)}")
        # if not whole, a slot that goes to sleep breaks its answers off
        return await self._slots.lines[slot].generate(self._request(request_id, **asked))


def servers_of(config: DictConfig, replicas: Sequence[Any]) -> list[Any]:
    """The policy's servers, where requests go to them directly."""
    return [replica.servers[0] for replica in replicas] if reaches_servers(config) else []
