"""verl's client, whose requests go to the policy's servers themselves: all of one moment in one call (``batching``).

verl's own asks the load balancer for a server before each response, and tells it afterwards. Here each rollout worker
takes the server with the fewest of its own requests. Where no servers are given, requests go verl's way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from ...serving.no_router import FILE
from .batching import Servers


class DirectClient(LLMServerClient):
    """It is pickled into each rollout worker.

    Args:
        config: verl's whole config.
        load_balancer_handle: verl's.
        servers: the policy's servers; empty: requests go verl's way.
        kwargs: verl's.

    Attributes:
        whole: whether nothing breaks a response off, so that the engine need hand it over only once.
    """

    whole = True

    def __init__(
        self, config: DictConfig, load_balancer_handle: Any = None, servers: Sequence[Any] = (), **kwargs: Any
    ) -> None:
        super().__init__(config, load_balancer_handle, **kwargs)
        self._servers = Servers(servers)

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response, as verl's client gives it.

        Args:
            request_id: verl's name for the request.
            prompt_ids: the prompt.
            sampling_params: vLLM's, with ``max_tokens``.
            kwargs: what else a server's ``generate`` takes.
        """
        asked = {"prompt_ids": prompt_ids, "sampling_params": dict(sampling_params), **kwargs}
        if self._servers.lines:
            return await self._ask(request_id, **asked)
        return await super().generate(request_id, **asked)

    @rollout_trace_op
    async def _ask(self, request_id: str, **asked: Any) -> TokenOutput:
        given = {name: value for name, value in asked.items() if value is not None}
        output = await self._servers.generate(
            {"request_id": self._vllm_request_id(request_id), "whole": self.whole, **given}
        )
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output


def servers_of(config: DictConfig, replicas: Sequence[Any]) -> list[Any]:
    """The policy's servers, where requests may go to them directly.

    Not so where a router of the user's is configured, or with ``batch_requests=false``.
    """
    router = config.actor_rollout_ref.rollout.get("router_config_path")
    if not config.batch_requests or (router and Path(router).resolve() != FILE.resolve()):
        return []
    return [replica.servers[0] for replica in replicas]
