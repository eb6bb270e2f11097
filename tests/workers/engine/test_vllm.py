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

from recipe.spiral.workers.engine import vllm
from recipe.spiral.workers.engine.vllm import SlotServer, VLLMServer
from tests.workers.engine.fakes import Engine


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
    ("settings", "left"),
    [({}, None), ({"free_cache_engine": False}, "a"), ({"mode": RolloutMode.STANDALONE}, "a")],
)
def test_asleep_it_is_nobody(settings: dict[str, Any], left: str | None) -> None:
    async def play() -> None:
        made = slot(**settings)
        await made.load("a", "/a")
        await made.sleep()
        assert await made.loaded() == left

    asyncio.run(play())
