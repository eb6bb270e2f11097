"""Stand-ins for vLLM's engine and for Ray's handles."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.workers.engine.client import Ended, Request
from recipe.spiral.workers.engine.vllm import VLLMServer


class Engine:
    """Says of each request which adapter came with it, and knows it from then on; a request takes a few turns of the
    event loop."""

    def __init__(self) -> None:
        self.loras: set[int] = set()
        self.sent: list[Any] = []

    async def list_loras(self) -> set[int]:
        await asyncio.sleep(0)
        return set(self.loras)

    async def remove_lora(self, number: int) -> bool:
        self.loras.discard(number)
        return True

    async def generate(self, prompt: Any, lora_request: Any = None) -> Any:
        self.sent.append(lora_request)
        if lora_request is not None:
            self.loras.add(lora_request.lora_int_id)
        for _ in range(3):
            await asyncio.sleep(0)
            yield SimpleNamespace(lora_request=lora_request, prompt=prompt)


class Streaming:
    """A server's handle with ``generate_many`` as Ray streams it.

    Args:
        generate: gives the answer to one request.
        dies: whether the server ends after its first answers.
    """

    def __init__(self, generate: Callable[..., Awaitable[TokenOutput]], dies: bool = False) -> None:
        self.calls: list[int] = []
        self.dies = dies
        self._generate = generate
        self.generate_many = SimpleNamespace(options=lambda num_returns: SimpleNamespace(remote=self._stream))

    async def _stream(self, requests: Sequence[Request]) -> AsyncIterator[Awaitable[Ended]]:
        self.calls.append(len(requests))
        server: Any = SimpleNamespace(answer=self._generate)
        async for ended in VLLMServer.generate_many(server, requests):
            future: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
            future.set_result(ended)
            yield future
            if self.dies:
                raise RuntimeError("the actor died")
