"""Our server between verl's and vLLM: limits of LoRA, adapters by name, and the policy's own requests untouched."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

from recipe.spiral.engine.adapters import BASE, AdapterError
from recipe.spiral.engine.vllm import VLLMServer
from tests.engine.fakes import Engine


@pytest.fixture(autouse=True)
def verls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """verl's server, as far as ours calls it; gives what was called."""
    called: list[Any] = []

    async def run_server(self: Any, args: Namespace) -> None:
        called.append(vars(args).copy())
        self.engine = Engine()
        self.engine.loras.add(123)

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        lora = None
        if self.lora_as_adapter:
            await self.engine.list_loras()
            lora = SimpleNamespace(lora_name="123", lora_int_id=123)
        async for output in self.engine.generate(prompt_ids, lora_request=lora):
            last = output
        return TokenOutput(token_ids=[1], extra_fields={"played": last.adapter})

    async def wake_up(self: Any, tags: list[str] | None = None) -> None:
        called.append(("woken", tags))

    for method in (run_server, generate, wake_up):
        monkeypatch.setattr(vLLMHttpServer, method.__name__, method)
    return called


def server(lora_rank: int = 8, merge: bool = False, **settings: Any) -> Any:
    made = object.__new__(VLLMServer)
    made.config = SimpleNamespace(engine_kwargs={"vllm": settings})
    made.model_config = SimpleNamespace(lora_rank=lora_rank, lora={"merge": merge})
    return made


def args(**limits: Any) -> Namespace:
    return Namespace(**{"max_loras": 1, "max_lora_rank": 8, "max_cpu_loras": None, **limits})


def test_the_configs_limits_of_lora_count(verls: list[Any]) -> None:
    made = server(max_loras=3, max_lora_rank=16)
    asyncio.run(made.run_server(args(max_cpu_loras=5)))
    assert verls == [{"max_loras": 3, "max_lora_rank": 16, "max_cpu_loras": 5}]
    assert made.adapters._room == 4
    asyncio.run(server().run_server(args()))
    asyncio.run(server(max_lora_rank=1).run_server(args()))
    assert verls[1] == verls[2] == {"max_loras": 1, "max_lora_rank": 8, "max_cpu_loras": None}, "verl's own, not less"


@pytest.mark.parametrize("settings", [{"lora_rank": 0}, {"merge": True}])
def test_without_adapters_it_is_verls(verls: list[Any], settings: dict[str, Any]) -> None:
    async def play() -> None:
        made = server(**settings, max_loras=3)
        await made.run_server(args())
        assert isinstance(made.engine, Engine)
        assert "answered_by" not in (await made.generate([1], {}, "r")).extra_fields
        for call in (made.load_adapter("a", "/a"), made.list_adapters(), made.generate([1], {}, "r", adapter=BASE)):
            with pytest.raises(AdapterError, match="takes no adapters"):
                await call
        await made.wake_up()

    asyncio.run(play())
    assert verls == [vars(args()), ("woken", None)]


def test_requests_with_and_without_a_name(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")

    async def play() -> None:
        made = server(max_loras=2)
        await made.run_server(args())
        await made.load_adapter("a", str(tmp_path))
        assert await made.list_adapters() == ["a"]
        asked = [None, "a", BASE] * 3
        outputs = await asyncio.gather(*[made.generate([1], {}, "r", adapter=name) for name in asked])
        assert [output.extra_fields.get("answered_by") for output in outputs] == asked
        assert [output.extra_fields["played"] for output in outputs] == ["123", "a#1000", None] * 3
        await made.unload_adapter("a")
        with pytest.raises(AdapterError, match="adapter a: not loaded"):
            await made.generate([1], {}, "r", adapter="a")

    asyncio.run(play())


@pytest.mark.parametrize(("tags", "again"), [(None, True), (["weights"], True), (["kv_cache"], False)])
def test_adapters_are_loaded_again_when_weights_wake(tmp_path: Path, tags: list[str] | None, again: bool) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")

    async def play() -> None:
        made = server(max_loras=2)
        await made.run_server(args())
        await made.load_adapter("a", str(tmp_path))
        made.engine.loras.clear()
        await made.wake_up(tags)
        assert made.engine.loras == ({1000} if again else set())

    asyncio.run(play())
