"""Each request is answered by the adapter that it names, however many there are at once."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.players.seats import BASE
from recipe.spiral.workers.engine import adapters as adapters_module
from recipe.spiral.workers.engine.adapters import FIRST_ID, AdapterError, Adapters, ChoosingEngine
from tests.workers.engine.fakes import Engine

POLICY = SimpleNamespace(lora_name="123", lora_int_id=123, lora_path="of verl")


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, str]:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "adapter_config.json").write_text("{}")
    return {name: str(tmp_path / name) for name in ("a", "b", "c")}


class Server:
    """Generates as verl's server does: it looks what is loaded, and takes the policy's adapter for every request."""

    def __init__(self, room: int = 2) -> None:
        self.vllm = Engine()
        self.vllm.loras.add(123)
        self.adapters = Adapters(self.vllm, room)
        self.engine = ChoosingEngine(self.vllm)

    async def generate(self, prompt: str, adapter: str | None = None) -> tuple[Any, str | None]:
        if adapter is None:
            return await self.as_verl(prompt), None
        with self.adapters.answering(adapter) as choice:
            output = await self.as_verl(prompt)
        return output, choice.answered_by

    async def as_verl(self, prompt: str) -> Any:
        request = POLICY if 123 in await self.engine.list_loras() else None
        await asyncio.sleep(0)
        async for output in self.engine.generate(prompt, lora_request=request):
            last = output
        return last


def test_requests_at_the_same_time_do_not_meet(folders: dict[str, str]) -> None:
    async def play() -> None:
        server = Server()
        await server.adapters.load("a", folders["a"])
        await server.adapters.load("b", folders["b"])
        asked = ["a", None, BASE, "b"] * 5
        answers = await asyncio.gather(*[server.generate(str(i), name) for i, name in enumerate(asked)])
        came_with = {"a": f"a#{FIRST_ID}", "b": f"b#{FIRST_ID + 1}", None: "123", BASE: None}
        for i, (name, (output, answered_by)) in enumerate(zip(asked, answers, strict=True)):
            assert (output.prompt, output.adapter, answered_by) == (str(i), came_with[name], name)
        assert (await server.as_verl("after")).adapter == "123", "no choice is left behind"

    asyncio.run(play())


def test_a_lost_adapter_is_an_error_of_the_iteration(folders: dict[str, str]) -> None:
    """verl counts requests round the iteration; a call that fails before it would be counted for ever."""

    async def play() -> None:
        server = Server()
        await server.adapters.load("a", folders["a"])
        server.vllm.loras.clear()
        with server.adapters.answering("a"):
            requested = server.engine.generate("p", lora_request=None)
            with pytest.raises(AdapterError, match="has lost the adapter a"):
                await anext(requested)
        assert not server.vllm.sent
        output, answered_by = await server.generate("p", BASE)
        assert (output.adapter, answered_by) == (None, BASE)
        await server.adapters.load_again()
        assert (await server.generate("p", "a"))[1] == "a"

    asyncio.run(play())


def test_a_request_that_waits_for_new_weights_is_answered_by_an_adapter_that_was_loaded_again(
    folders: dict[str, str],
) -> None:
    """It came when the adapter was out, and goes on when it is in again."""

    async def play() -> None:
        server, gate = Server(), asyncio.Event()

        class Slow(Engine):
            async def add_lora(self, request: Any) -> bool:
                await gate.wait()
                return await super().add_lora(request)

        await server.adapters.load("a", folders["a"])
        server.vllm.__class__ = Slow
        again = asyncio.create_task(server.adapters.load_again())
        await asyncio.sleep(0)
        assert server.vllm.loras == {123}
        with server.adapters.answering("a") as choice:
            assert await server.engine.list_loras() == {123}  # as verl does
            gate.set()
            await again  # verl's gate is closed until then
            assert (await anext(server.engine.generate("p"))).adapter == f"a#{FIRST_ID}"
            assert choice.answered_by == "a"

    asyncio.run(play())


def test_a_name_with_other_weights_is_another_adapter_to_vllm(folders: dict[str, str]) -> None:
    """vLLM finds what it has computed before by the adapter's name."""

    async def play() -> None:
        server = Server()
        await server.adapters.load("a", folders["a"])
        first, _ = await server.generate("p", "a")
        await server.adapters.load("a", folders["b"])
        second, answered_by = await server.generate("p", "a")
        assert first.adapter != second.adapter and answered_by == "a"
        assert server.adapters.names() == ["a"] and server.vllm.loras == {123, FIRST_ID + 1}
        assert server.vllm.sent[-1].lora_path == folders["b"]

    asyncio.run(play())


def test_what_is_refused(folders: dict[str, str], tmp_path: Path) -> None:
    async def play() -> None:
        server = Server(room=2)
        with pytest.raises(AdapterError, match="no adapter can be called 'base'"):
            await server.adapters.load(BASE, folders["a"])
        with pytest.raises(AdapterError, match=r"holds no adapter_config\.json"):
            await server.adapters.load("a", str(tmp_path))
        server.vllm.refuses.add(folders["c"])
        with pytest.raises(AdapterError, match=r"adapter c: vLLM cannot load .*: no such tensors"):
            await server.adapters.load("c", folders["c"])
        with pytest.raises(AdapterError, match="adapter c: not loaded; there are base"):
            await server.generate("p", "c")
        await server.adapters.load("a", folders["a"])
        await server.adapters.load("b", folders["b"])
        with pytest.raises(AdapterError, match=r"room for 2 \(a, b\); unload one"):
            await server.adapters.load("c", folders["c"])
        await server.adapters.unload("a")
        await server.adapters.unload("never there")
        assert server.vllm.loras == {123, FIRST_ID + 2} and server.adapters.names() == ["b"]

    asyncio.run(play())


def test_an_adapter_that_answers_stays(folders: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        server = Server()
        await server.adapters.load("a", folders["a"])
        with (
            server.adapters.answering("a"),
            pytest.raises(AdapterError, match="is answering 1 requests"),
        ):
            await server.adapters.unload("a")
        assert server.adapters.names() == ["a"]

    monkeypatch.setattr(adapters_module, "PATIENCE", 0.05)
    asyncio.run(play())


def test_a_last_answer_is_waited_for(folders: dict[str, str]) -> None:
    async def play() -> None:
        server = Server()
        await server.adapters.load("a", folders["a"])
        answer = asyncio.create_task(server.generate("p", "a"))
        await asyncio.sleep(0)
        await server.adapters.unload("a")
        assert answer.done() and answer.result()[1] == "a"
        assert server.adapters.names() == []

    asyncio.run(play())


def test_without_its_adapter_the_policy_does_not_answer(folders: dict[str, str]) -> None:
    """verl would let the base model answer; under a choice that is what may be asked for."""

    async def play() -> None:
        server = Server()
        server.vllm.loras.clear()
        requested = server.engine.generate("p", lora_request=None)
        with pytest.raises(AdapterError, match="the policy was asked for a response, and the engine does not have"):
            await anext(requested)
        with pytest.raises(AdapterError, match="does not have its adapter"):
            await server.generate("p")
        assert not server.vllm.sent
        assert (await server.generate("p", BASE))[1] == BASE

    asyncio.run(play())


def test_what_cannot_be_loaded_again_is_told_and_the_rest_is_loaded(folders: dict[str, str]) -> None:
    async def play() -> None:
        server = Server(room=3)
        for name, path in folders.items():
            await server.adapters.load(name, path)
        for name in "ab":
            shutil.rmtree(folders[name])
        with pytest.raises(AdapterError, match=r"not loaded again .*adapter a: .*; adapter b: .*no adapter found"):
            await server.adapters.load_again()
        assert server.adapters.names() == ["c"]
        assert (await server.generate("p", "c"))[1] == "c"
        with pytest.raises(AdapterError, match="adapter a: not loaded; there are base, c"):
            await server.generate("p", "a")
        await server.adapters.load_again()

    asyncio.run(play())


def test_the_rest_of_the_engine_is_vllms() -> None:
    assert ChoosingEngine(Engine()).is_tracing() == "passed through"
