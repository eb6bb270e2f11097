"""Our servers between verl's and vLLM: adapters by name, the policy's own requests untouched; a slot's answer says
whose weights gave it, from the first token to the last."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import RolloutMode, TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm.v1.engine.exceptions import EngineDeadError

from recipe.spiral.players.seats import BASE
from recipe.spiral.workers.engine import vllm
from recipe.spiral.workers.engine.adapters import FIRST_ID, AdapterError, Asked, ChoosingEngine, asked
from recipe.spiral.workers.engine.vllm import SlotServer, VLLMServer


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


@pytest.fixture
def verls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """verl's server, as far as ours calls it; gives what was called."""
    called: list[Any] = []

    async def run_server(self: Any, args: Namespace) -> None:
        called.append(vars(args).copy())
        self.engine = Engine()
        self.engine.loras.add(123)

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        lora = None
        if self.lora_as_adapter and 123 in await self.engine.list_loras():
            lora = SimpleNamespace(lora_name="123", lora_int_id=123)
        async for output in self.engine.generate({"prompt_token_ids": prompt_ids}, lora_request=lora):
            last = output
        return TokenOutput(token_ids=[1], extra_fields={"played": last.lora_request and last.lora_request.lora_name})

    async def wake_up(self: Any, tags: list[str] | None = None) -> None:
        called.append(("woken", tags))

    for method in (run_server, generate, wake_up):
        monkeypatch.setattr(vLLMHttpServer, method.__name__, method)
    return called


def server(lora_rank: int = 8, merge: bool = False, **settings: Any) -> Any:
    made = object.__new__(VLLMServer)
    made.config = SimpleNamespace(engine_kwargs={"vllm": settings})
    made.model_config, made.node_rank = SimpleNamespace(lora_rank=lora_rank, lora={"merge": merge}), 0
    return made


def args(**limits: Any) -> Namespace:
    return Namespace(**{"max_loras": 1, "max_lora_rank": 8, "max_cpu_loras": None, **limits})


@pytest.mark.parametrize("settings", [{"lora_rank": 0}, {"merge": True}])
def test_without_adapters_it_is_verls(verls: list[Any], settings: dict[str, Any]) -> None:
    async def play() -> None:
        made = server(**settings, max_loras=3)
        await made.run_server(args())
        assert "answered_by" not in (await made.generate([1], {}, "r")).extra_fields
        await made.wake_up()

    asyncio.run(play())
    assert verls == [vars(args()), ("woken", None)]


@pytest.mark.usefixtures("verls")
@pytest.mark.parametrize(("tags", "again"), [(None, True), (["weights"], True), (["kv_cache"], False)])
def test_adapters_are_read_again_when_weights_wake(tags: list[str] | None, again: bool) -> None:
    async def play() -> None:
        made = server(max_loras=2)
        await made.run_server(args())
        await made.set_adapters({"a": "/a"})
        for _ in range(2):
            await made.generate([1], {}, "r", adapter="a")
            await made.wake_up(tags)
        await made.generate([1], {}, "r", adapter="a")
        assert made.engine.loras == {123, 1002 if again else 1000}

    asyncio.run(play())


@pytest.mark.usefixtures("verls")
def test_a_server_tells_that_its_engine_has_died() -> None:
    async def play() -> None:
        made = server()
        await made.engine_answers()  # it has none yet
        made.engine = SimpleNamespace(errored=False, dead_error=EngineDeadError())
        await made.engine_answers()
        made.engine.errored = True
        with pytest.raises(EngineDeadError):
            await made.engine_answers()

    asyncio.run(play())


# -- slots -------------------------------------------------------------------------------------------------------------


async def turns(number: int) -> None:
    """Wait for so many turns of the event loop."""
    for _ in range(number):
        await asyncio.sleep(0)


class Loading:
    """Its weights are the folder that was loaded last; while it loads, they are both."""

    def __init__(self) -> None:
        self.weights = "first"
        self.fails = self.keeps = False

    async def collective_rpc(self, method: str, timeout: float, kwargs: dict[str, str]) -> None:
        assert method == "reload_weights"
        self.weights = "mixed"
        await turns(20)
        if self.fails:
            raise RuntimeError("out of memory")
        self.weights = kwargs["weights_path"]

    async def reset_prefix_cache(self, reset_connector: bool) -> bool:
        return not self.keeps

    async def sleep(self, level: int) -> None:
        assert level == 2

    async def reset_encoder_cache(self) -> None: ...


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes the engine's weights at each token."""

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        seen = set()
        for _ in range(5):
            seen.add(self.engine.weights)
            await turns(2)
        return TokenOutput(token_ids=[1], extra_fields={"weights": seen})

    monkeypatch.setattr(vLLMHttpServer, "generate", generate)
    monkeypatch.setattr(vllm, "unfit", lambda folder, model: "it lacks w" if "unfit" in str(folder) else "")


def slot(free_cache_engine: bool = True, mode: RolloutMode = RolloutMode.HYBRID) -> Any:
    made = object.__new__(SlotServer)
    made.node_rank, made.engine, made.rollout_mode = 0, Loading(), mode
    made.config = SimpleNamespace(free_cache_engine=free_cache_engine)
    made.model_config = SimpleNamespace(local_path="/model", lora_rank=0, lora={})
    return made


async def ask(made: Any) -> dict[str, Any]:
    output: TokenOutput = await made.generate([1], {}, "request")
    return output.extra_fields


@pytest.mark.usefixtures("slow")
def test_an_answer_that_spans_a_load_is_nobodys() -> None:
    async def play() -> None:
        made, seen = slot(), set()
        await made.load("/a", "/a")

        async def one(delay: int) -> None:
            await turns(delay)
            answer = await ask(made)
            assert answer["weights"] == {answer["answered_by"]} or answer["answered_by"] is None
            seen.add(answer["answered_by"])

        async def load() -> None:
            await turns(20)
            await made.load("/b", "/b")

        await asyncio.gather(load(), *[one(2 * i) for i in range(50)])
        await one(0)
        assert seen == {"/a", "/b", None}

    asyncio.run(play())


@pytest.mark.usefixtures("slow")
def test_after_a_failed_load_it_is_nobody() -> None:
    async def play() -> None:
        made = slot()
        for folder, fault in (("/unfit", ""), ("/b", "fails"), ("/b", "keeps")):
            await made.load("a", "/a")
            assert ((await ask(made))["answered_by"], await made.loaded()) == ("a", "a")
            if fault:
                setattr(made.engine, fault, True)
            with pytest.raises((RuntimeError, ValueError)):
                await made.load("b", folder)
            assert ((await ask(made))["answered_by"], await made.loaded()) == (None, None)
            made.engine.fails = made.engine.keeps = False

    asyncio.run(play())


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize(
    ("settings", "left"), [({}, None), ({"free_cache_engine": False}, "a"), ({"mode": RolloutMode.STANDALONE}, "a")]
)
def test_asleep_it_is_nobody(settings: dict[str, Any], left: str | None) -> None:
    async def play() -> None:
        made = slot(**settings)
        await made.load("a", "/a")
        await made.sleep()
        assert await made.loaded() == left

    asyncio.run(play())


# -- adapters: each request is answered by the one that it names, however many there are at once -----------------------

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
