"""A slot's answer says whose weights gave it, from the first token to the last."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import RolloutMode, TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from recipe.spiral.workers.engine import slot_server
from recipe.spiral.workers.engine.slot_server import SlotServer


class Engine:
    """Its weights are the folder that was loaded last; while it loads, they are both."""

    def __init__(self) -> None:
        self.weights = "first"
        self.fails = self.keeps = False

    async def collective_rpc(self, method: str, timeout: float, kwargs: dict[str, str]) -> None:
        assert method == "reload_weights"
        self.weights = "mixed"
        await asyncio.sleep(0.02)
        if self.fails:
            raise RuntimeError("out of memory")
        self.weights = kwargs["weights_path"]

    async def reset_prefix_cache(self, reset_connector: bool) -> bool:
        return not self.keeps

    async def sleep(self, level: int) -> None:
        assert level == 2

    async def reset_encoder_cache(self) -> None: ...


@pytest.fixture(autouse=True)
def verls_generate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes the engine's weights at each token."""

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        seen = set()
        for _ in range(5):
            seen.add(self.engine.weights)
            await asyncio.sleep(0.002)
        return TokenOutput(token_ids=[1], extra_fields={"weights": seen})

    monkeypatch.setattr(vLLMHttpServer, "generate", generate)
    monkeypatch.setattr(slot_server, "unfit", lambda folder, model: "it lacks w" if "unfit" in str(folder) else "")


def server(free_cache_engine: bool = True, mode: RolloutMode = RolloutMode.HYBRID) -> Any:
    made = object.__new__(SlotServer)
    made.node_rank, made.engine, made.rollout_mode = 0, Engine(), mode
    made.config = SimpleNamespace(free_cache_engine=free_cache_engine)
    made.model_config = SimpleNamespace(local_path="/model", lora_rank=0, lora={})
    return made


async def ask(made: Any) -> dict[str, Any]:
    output: TokenOutput = await made.generate([1], {}, "request")
    return output.extra_fields


def test_an_answer_that_spans_a_load_is_nobodys() -> None:
    async def play() -> None:
        made, seen = server(), set()
        await made.load("/a", "/a")

        async def one(delay: float) -> None:
            await asyncio.sleep(delay)
            answer = await ask(made)
            assert answer["weights"] == {answer["answered_by"]} or answer["answered_by"] is None
            seen.add(answer["answered_by"])

        async def load() -> None:
            await asyncio.sleep(0.02)
            await made.load("/b", "/b")

        await asyncio.gather(load(), *[one(0.002 * i) for i in range(50)])
        await one(0.0)
        assert seen == {"/a", "/b", None}

    asyncio.run(play())


def test_after_a_failed_load_it_is_nobody() -> None:
    async def play() -> None:
        made = server()
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


@pytest.mark.parametrize(
    ("settings", "left"),
    [({}, None), ({"free_cache_engine": False}, "a"), ({"mode": RolloutMode.STANDALONE}, "a")],
)
def test_asleep_it_is_nobody(settings: dict[str, Any], left: str | None) -> None:
    async def play() -> None:
        made = server(**settings)
        await made.load("a", "/a")
        await made.sleep()
        assert await made.loaded() == left

    asyncio.run(play())
