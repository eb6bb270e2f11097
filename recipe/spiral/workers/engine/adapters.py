"""LoRA adapters beside the policy's own, on the policy's engine: each request is answered by the one that it names.

verl gives every request the policy's adapter. Its ``generate`` is kept as it is: a context variable holds the adapter
of a request while verl's method runs, and the engine that verl calls is wrapped by one that looks there. A context
variable belongs to one task, and a task has one request at a time: requests at the same time do not share it.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from ...players.seats import BASE

#: Ids of adapters count from here, away from verl's 123; none is used twice, so that no cache mistakes one for another.
FIRST_ID = 1000
#: Seconds that an adapter's last answers may take to end before it is taken out.
PATIENCE = 10.0


class AdapterError(RuntimeError):
    """An adapter cannot be loaded, or is not there when it should answer."""


@dataclass
class Choice:
    """The adapter that is to answer one request."""

    name: str
    #: What vLLM takes for it; None: the model without an adapter.
    request: Any | None
    #: The name of the adapter that the engine was asked for.
    answered_by: str | None = None


_choice: ContextVar[Choice | None] = ContextVar("adapter", default=None)


class ChoosingEngine:
    """vLLM's engine; a request carries the adapter of the ``Choice`` in its context, if there is one.

    Other requests are the policy's, and carry its adapter. verl leaves that out where the engine does not list it, and
    would have the base model play as the policy.
    """

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(self, *args: Any, lora_request: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Fails only when it is iterated, as vLLM's: verl keeps count of requests round the iteration.

        What is loaded is looked up here: verl looks before a request waits for new weights, while adapters may be on
        their way out and in again.
        """
        choice = _choice.get()
        if choice is not None:
            lora_request = choice.request
            if lora_request is not None and lora_request.lora_int_id not in await self._engine.list_loras():
                raise AdapterError(f"the engine has lost the adapter {choice.name}: it would have answered without")
            choice.answered_by = BASE if lora_request is None else lora_request.lora_name.rpartition("#")[0]
        elif lora_request is None:
            # No weights are asked before the first sync: verl's trainer ends its start with one, before validation.
            raise AdapterError(
                "the policy was asked for a response, and the engine does not have its adapter: it would have answered "
                "without; the policy's weights must be synchronised first"
            )
        async for output in self._engine.generate(*args, lora_request=lora_request, **kwargs):
            yield output


class Adapters:
    """The adapters that one engine has besides the policy's, by name.

    Args:
        engine: vLLM's.
        room: how many there may be; one more would push another out, perhaps the policy's.
    """

    def __init__(self, engine: Any, room: int) -> None:
        self._engine = engine
        self._room = room
        self._requests: dict[str, Any] = {}
        self._answering: Counter[str] = Counter()
        self._ids = itertools.count(FIRST_ID)
        self._lock = asyncio.Lock()

    def names(self) -> list[str]:
        return sorted(self._requests)

    async def load(self, name: str, path: str) -> None:
        """Take in an adapter from a folder of PEFT's; one of the same name is taken out before.

        Raises:
            AdapterError: there is none, there is no room, or vLLM does not take it; nothing of that name is there now.
        """
        from vllm.lora.request import LoRARequest

        if name == BASE:
            raise AdapterError(f"no adapter can be called {BASE!r}: that is the model without one")
        if name in self._requests:
            await self.unload(name)
        async with self._lock:
            if not (Path(path) / "adapter_config.json").is_file():
                raise AdapterError(f"adapter {name}: {path} holds no adapter_config.json, so it is no folder of PEFT's")
            if len(self._requests) >= self._room:
                raise AdapterError(
                    f"adapter {name}: the engine has room for {self._room} ({', '.join(self._requests)}); unload one, "
                    "or raise max_loras and max_cpu_loras in actor_rollout_ref.rollout.engine_kwargs.vllm"
                )
            number = next(self._ids)
            request = LoRARequest(lora_name=f"{name}#{number}", lora_int_id=number, lora_path=path)
            await self._add(name, request)
            self._requests[name] = request

    async def unload(self, name: str) -> None:
        """Take an adapter out; nothing happens if there is none of that name.

        It works while the engine sleeps as well: vLLM only strikes it off its lists.

        Raises:
            AdapterError: it is answering a request that does not end.
        """
        async with self._lock:
            end = time.monotonic() + PATIENCE
            while self._answering[name]:  # sleeping has broken them off, and their answers are on the way
                if time.monotonic() > end:
                    raise AdapterError(f"adapter {name}: is answering {self._answering[name]} requests, and must stay")
                await asyncio.sleep(0.01)
            if (request := self._requests.pop(name, None)) is not None:
                await self._engine.remove_lora(request.lora_int_id)

    async def load_again(self) -> None:
        """Load every adapter anew, under its own id: sleeping may have emptied what the engine still lists.

        Raises:
            AdapterError: some could not be, as when their folders are gone; they are not there now, the others are.
        """
        async with self._lock:
            failures = []
            for name, request in list(self._requests.items()):
                await self._engine.remove_lora(request.lora_int_id)
                try:
                    await self._add(name, request)
                except AdapterError as error:
                    del self._requests[name]
                    failures.append(str(error))
            await self._engine.collective_rpc("look_for_adapters")
            if failures:
                raise AdapterError(f"not loaded again after the engine slept: {'; '.join(failures)}")

    async def _add(self, name: str, request: Any) -> None:
        try:
            added = await self._engine.add_lora(request)
        except Exception as error:
            raise AdapterError(f"adapter {name}: vLLM cannot load {request.lora_path}: {error}") from error
        if not added or request.lora_int_id not in await self._engine.list_loras():
            raise AdapterError(f"adapter {name}: vLLM did not take {request.lora_path}")

    @contextmanager
    def answering(self, name: str) -> Iterator[Choice]:
        """Within it, requests of this task are answered by the named adapter; AdapterError: there is none."""
        if name != BASE and name not in self._requests:
            raise AdapterError(f"adapter {name}: not loaded; there are {', '.join([BASE, *self.names()])}")
        choice = Choice(name, None if name == BASE else self._requests[name])
        self._answering[name] += 1
        token = _choice.set(choice)
        try:
            yield choice
        finally:
            _choice.reset(token)
            self._answering[name] -= 1


class WorkerExtension(vLLMColocateWorkerExtension):
    """verl's extension of vLLM's workers, which makes vLLM look up the adapters' slots again after an exchange.

    vLLM remembers in which slots a batch's adapters are, by their ids. Before 0.25 it does not notice when an adapter
    of the same id comes to lie in another slot, as the policy's may with each sync, and answers by what lies in the
    old one (vllm-project/vllm#47725).
    """

    model_runner: Any

    def update_weights_from_ipc(self, *args: Any, **kwargs: Any) -> None:
        super().update_weights_from_ipc(*args, **kwargs)
        self.look_for_adapters()

    def look_for_adapters(self) -> None:
        """Have the next batch look up its adapters' slots again."""
        manager = getattr(self.model_runner, "lora_manager", None)
        if manager is not None:
            manager._adapter_manager._last_mapping = None
