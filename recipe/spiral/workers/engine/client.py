"""What the agent loops generate with: verl's client for the policy, and one more method for its opponents.

Where it knows the policy's servers, requests go to them directly, all of one moment in one call (``batching``);
otherwise each goes verl's way, through the load balancer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig
from verl.utils.rollout_trace import rollout_trace_op
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from .batching import Servers

#: How often a response is asked for again when the engine aborts it, as the asynchronous modes do while they train.
ATTEMPTS = 6 * 3600
#: Seconds between two of them.
PAUSE = 1.0


class WrongWeights(RuntimeError):
    """An answer came from other weights than those that were asked."""


class TableClient:
    """verl's client, with opponents; it is pickled into each rollout worker.

    It passes everything else that verl reads, calls or sets to verl's own client.

    Args:
        policy: what ``LLMServerManager.get_client`` gives.
        slots: the opponents' servers with full weights, by slot; empty where opponents are LoRA adapters on the
            policy's own servers.
        servers: the policy's servers; empty: requests go verl's way.
    """

    def __init__(self, policy: LLMServerClient, slots: Sequence[Any] = (), servers: Sequence[Any] = ()) -> None:
        vars(self).update(_policy=policy, _slots=Servers(slots), _servers=Servers(servers))

    async def generate(
        self, request_id: str, *, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        """One response of the policy, as verl's client gives it.

        Args:
            request_id: verl's name for the request.
            prompt_ids: the prompt.
            sampling_params: vLLM's, with ``max_tokens``.
            kwargs: what else a server's ``generate`` takes.
        """
        if self._servers.lines:
            return await self._ask_directly(request_id, prompt_ids, sampling_params, **kwargs)
        return await self._policy.generate(
            request_id, prompt_ids=prompt_ids, sampling_params=dict(sampling_params), **kwargs
        )

    @rollout_trace_op
    async def _ask_directly(
        self, request_id: str, prompt_ids: list[int], sampling_params: Mapping[str, Any], **kwargs: Any
    ) -> TokenOutput:
        output = await self._servers.generate(self._request(request_id, prompt_ids, sampling_params) | kwargs)
        weights = output.extra_fields.get("global_steps")
        output.extra_fields.setdefault("min_global_steps", weights)
        output.extra_fields.setdefault("max_global_steps", weights)
        return output

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
        request = self._request(request_id, prompt_ids, sampling)
        if slot is not None:
            if not 0 <= slot < len(self._slots.lines):
                raise RuntimeError(f"{name} is to play from slot {slot}, and there are {len(self._slots.lines)}")
            # In the asynchronous modes a slot that goes to sleep breaks its answers off.
            whole = type(self._policy) is LLMServerClient
            return await self._slots.lines[slot].generate(request | {"whole": whole})
        if self._servers.lines:
            return await self._servers.generate(request | {"adapter": name})
        # The class's own: that of the asynchronous modes puts an answer together anew, without who gave it.
        return await LLMServerClient.generate(
            self._policy, request_id, prompt_ids=prompt_ids, sampling_params=sampling, adapter=name
        )

    def _request(self, request_id: str, prompt_ids: list[int], sampling: Mapping[str, Any]) -> dict[str, Any]:
        return {
            "request_id": self._policy._vllm_request_id(request_id),
            "prompt_ids": prompt_ids,
            "sampling_params": dict(sampling),
        }

    def __getattr__(self, name: str) -> Any:
        if name in ("_policy", "_slots", "_servers"):  # not there yet, while this is unpickled
            raise AttributeError(name)
        return getattr(self._policy, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._policy, name, value)


def servers_of(config: DictConfig, policy: LLMServerClient, replicas: Sequence[Any]) -> list[Any]:
    """The policy's servers, where requests may go to them directly.

    Not so in the asynchronous modes, whose client breaks off requests and puts answers together anew; where a router is
    configured; or with ``batch_requests=false``.
    """
    direct = config.batch_requests and type(policy) is LLMServerClient
    if not direct or config.actor_rollout_ref.rollout.get("router_config_path"):
        return []
    return [replica.servers[0] for replica in replicas]
