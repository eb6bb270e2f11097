"""Each request is answered by the adapter that it names, however many there are at once."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.players.seats import BASE
from recipe.spiral.workers.engine.adapters import FIRST_ID, AdapterError, Asked, ChoosingEngine, asked
from tests.workers.engine.fakes import Engine

POLICY = SimpleNamespace(lora_name="123", lora_int_id=123, lora_path="of verl")
FOLDERS = {"a": "/a", "b": "/b"}


class Server:
    """Generates as verl's server does: it looks what is loaded, and takes the policy's adapter for every request."""

    def __init__(self) -> None:
        self.vllm = Engine()
        self.vllm.loras.add(123)
        self.engine = ChoosingEngine(self.vllm)

    async def generate(self, prompt: str, adapter: str | None = None) -> tuple[Any, str | None]:
        request = None if adapter is None else Asked(adapter)
        token = asked.set(request)
        try:
            output = await self.as_verl(prompt)
        finally:
            asked.reset(token)
        return output, request and request.answered_by

    async def as_verl(self, prompt: str) -> Any:
        request = POLICY if 123 in await self.engine.list_loras() else None
        await asyncio.sleep(0)
        async for output in self.engine.generate(prompt, lora_request=request):
            last = output
        return last

    async def set_adapters(self, folders: dict[str, str]) -> None:
        await self.engine.set_adapters(folders)


def test_requests_at_the_same_time_do_not_meet() -> None:
    async def play() -> None:
        server = Server()
        await server.engine.set_adapters(FOLDERS)
        names = ["a", None, BASE, "b"] * 5
        answers = await asyncio.gather(*[server.generate(str(i), name) for i, name in enumerate(names)])
        for i, (name, (output, answered_by)) in enumerate(zip(names, answers, strict=True)):
            came_with = output.lora_request and output.lora_request.lora_name
            assert (output.prompt, came_with, answered_by) == (str(i), {None: "123", BASE: None}.get(name, name), name)
        assert (await server.as_verl("after")).lora_request is POLICY, "nothing is left behind"

    asyncio.run(play())


def test_an_adapter_is_read_again_under_another_id() -> None:
    """After a sleep, and where a name has another folder; a request that waited meanwhile comes with the new one."""

    async def play() -> None:
        server = Server()

        async def id_of(name: str) -> int:
            number: int = (await server.generate("p", name))[0].lora_request.lora_int_id
            return number

        await server.engine.set_adapters(FOLDERS)
        first = {name: await id_of(name) for name in FOLDERS}
        await server.engine.set_adapters(FOLDERS)
        assert {name: await id_of(name) for name in FOLDERS} == first
        waiting = asyncio.create_task(server.generate("p", "a"))
        await server.engine.read_again()
        assert (await waiting)[0].lora_request.lora_int_id == await id_of("a") > max(first.values()) >= FIRST_ID
        before = await id_of("b")
        await server.engine.set_adapters({**FOLDERS, "a": "/other"})
        assert await id_of("b") == before and (await server.generate("p", "a"))[0].lora_request.lora_path == "/other"
        assert server.vllm.loras == {123, await id_of("a"), before}, "vLLM has no other any more"

    asyncio.run(play())


def test_nobody_is_played_by_the_base() -> None:
    """verl counts requests round the iteration; a call that fails before it would be counted for ever."""

    async def play() -> None:
        server = Server()
        await server.engine.set_adapters({"a": "/a"})
        await server.engine.set_adapters({"b": "/b"})
        with pytest.raises(AdapterError, match="adapter a: not loaded"):
            await server.generate("p", "a")
        server.vllm.loras.clear()
        requested = server.engine.generate("p", lora_request=None)
        with pytest.raises(AdapterError, match="the policy"):
            await anext(requested)
        assert not server.vllm.sent
        assert (await server.generate("p", BASE))[1] == BASE

    asyncio.run(play())
