"""The client that asks servers itself (``batching``); verl's asks a load balancer for one before each response."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any
from uuid import uuid4

from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.replica import TokenOutput

from ..workers.engine.game_client import GameClient
from ..workers.engine.resuming_client import ResumingClient
from .batching import Here, Line, Servers

#: Requests have the name of their process and a number.
_PROCESS, _requests = uuid4().hex, itertools.count()


class DirectClient(GameClient):
    """It is pickled into each rollout worker.

    Args:
        servers: the policy's.
        config, load_balancer_handle, slots: as of ``GameClient``.

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
        super().__init__(config, load_balancer_handle, slots, **kwargs)
        self._servers = Servers(map(Line, servers))
        self._slots = [Line(slot) for slot in slots]

    @property
    def servers(self) -> list[Any]:
        """The policy's servers."""
        return [line.server for line in self._servers.lines]

    def stay(self, server: Any) -> None:
        """Ask for the policy's responses nobody but a server that is in this process."""
        self._servers = Servers([Here(server)])

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response, as verl's client gives it; ``kwargs`` are what else a server's ``generate`` takes."""
        return await self.ask_whole(request_id, prompt_ids=prompt_ids, sampling_params=dict(sampling_params), **kwargs)

    @rollout_trace_op
    async def ask_whole(self, request_id: str, **asked: Any) -> TokenOutput:
        given = {name: value for name, value in asked.items() if value is not None}
        output = await self._servers.generate(self._request(request_id, **given))
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output

    async def ask_slot(self, slot: int, request_id: str, **asked: Any) -> TokenOutput:
        # if not whole, a slot that goes to sleep breaks its answers off
        return await self._slots[slot].generate(self._request(request_id, **asked))

    def _vllm_request_id(self, request_id: str) -> str:
        """verl looks into the config and draws a random number each time, which takes longer than a move in a game."""
        return request_id if self._determined else f"{_PROCESS}-{next(_requests)}"

    @cached_property
    def _determined(self) -> bool:
        return bool(getattr(self.config.actor_rollout_ref.rollout, "full_determinism", False))

    def _request(self, request_id: str, **asked: Any) -> dict[str, Any]:
        return {"request_id": self._vllm_request_id(request_id), "whole": self.whole, **asked}


class DirectResumingClient(ResumingClient, DirectClient):
    """The client of the asynchronous modes, whose parts come from the servers themselves."""

    whole = False
