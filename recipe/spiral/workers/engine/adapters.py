"""LoRA adapters beside the policy's own, on the policy's engine: each request is answered by the one that it names.

verl gives every request the policy's adapter. Its ``generate`` is kept as it is: a context variable holds the adapter
that a request asks for while verl's method runs, and the engine that verl calls is wrapped by one that looks there. A
context variable belongs to one task, and a task has one request at a time.

vLLM itself reads an adapter from its folder when a request comes with an id that it does not know. So an adapter gets a
new id whenever the engine may have lost it.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from ...players.seats import BASE
from .. import rendezvous  # noqa: F401  (vLLM's ranks meet on one address)

#: Ids of adapters count from here, away from verl's 123; none is used twice, so that no cache mistakes one for another.
FIRST_ID = 1000


class AdapterError(RuntimeError):
    """An adapter is not there when it should answer."""


@dataclass
class Asked:
    """The adapter that is to answer one request, and the one that the engine says has answered."""

    name: str
    answered_by: str | None = None


#: Of the request that this task is answering; None: the policy is asked.
asked: ContextVar[Asked | None] = ContextVar("adapter", default=None)


class ChoosingEngine:
    """vLLM's engine with other adapters beside the policy's; a request carries the one that is ``asked``, if any.

    Other requests are the policy's, and carry its adapter. verl leaves that out where the engine does not list it, and
    would have the base model play as the policy.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        #: vLLM's name of each adapter.
        self._adapters: dict[str, Any] = {}
        self._ids = itertools.count(FIRST_ID)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def set_adapters(self, folders: Mapping[str, str]) -> None:
        """Have exactly these, from folders of PEFT's. There may be one fewer than ``max_loras``, as one is the
        policy's: one more would push another out of the engine, perhaps the policy's."""
        from vllm.lora.request import LoRARequest

        for name, adapter in list(self._adapters.items()):
            if folders.get(name) != adapter.lora_path:
                await self._engine.remove_lora(self._adapters.pop(name).lora_int_id)
        for name in folders.keys() - self._adapters.keys():
            self._adapters[name] = LoRARequest(name, next(self._ids), folders[name])

    async def read_again(self) -> None:
        """Have vLLM read all of them again: sleeping may have emptied what the engine still lists."""
        folders = {name: adapter.lora_path for name, adapter in self._adapters.items()}
        await self.set_adapters({})
        await self.set_adapters(folders)

    async def generate(self, *args: Any, lora_request: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Fails only when it is iterated, as vLLM's: verl keeps count of requests round the iteration.

        The adapter is looked up here: verl looks before a request waits for new weights, while ids may change.
        """
        request = asked.get()
        if request is not None:
            if request.name not in (BASE, *self._adapters):
                raise AdapterError(f"adapter {request.name}: not loaded; there are {sorted([BASE, *self._adapters])}")
            lora_request = self._adapters.get(request.name)
        elif lora_request is None:
            # No weights are asked before the first sync: verl's trainer ends its start with one, before validation.
            raise AdapterError(
                "the policy was asked for a response, and the engine does not have its adapter: it would have answered "
                "without; the policy's weights must be synchronised first"
            )
        async for output in self._engine.generate(*args, lora_request=lora_request, **kwargs):
            if request is not None:
                request.answered_by = output.lora_request.lora_name if output.lora_request else BASE
            yield output


class WorkerExtension(vLLMColocateWorkerExtension):
    """verl's extension of vLLM's workers, which makes vLLM look up the adapters' slots again after a sync.

    vLLM remembers in which slots a batch's adapters are, by their ids. Before 0.25 it does not notice when an adapter
    of the same id comes to lie in another slot, as the policy's may with each sync, and answers by what lies in the
    old one (vllm-project/vllm#47725).
    """

    model_runner: Any

    def update_weights_from_ipc(self, *args: Any, **kwargs: Any) -> None:
        super().update_weights_from_ipc(*args, **kwargs)
        manager = getattr(self.model_runner, "lora_manager", None)
        if manager is not None:
            manager._adapter_manager._last_mapping = None
