"""Our server between verl's and vLLM: limits of LoRA, adapters by name, and the policy's own requests untouched."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.exceptions import EngineDeadError

from recipe.spiral.workers.engine.vllm import VLLMServer
from tests.workers.engine.fakes import Engine


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


def test_the_configs_limits_of_lora_count(verls: list[Any]) -> None:
    made = server(max_loras=3, max_lora_rank=16)
    asyncio.run(made.run_server(args(max_cpu_loras=5)))
    assert verls == [{"max_loras": 3, "max_lora_rank": 16, "max_cpu_loras": 5}]
    asyncio.run(server().run_server(args()))
    asyncio.run(server(max_lora_rank=1).run_server(args()))
    assert verls[1] == verls[2] == vars(args()), "verl's own, not less"


@pytest.mark.parametrize("settings", [{"lora_rank": 0}, {"merge": True}])
def test_without_adapters_it_is_verls(verls: list[Any], settings: dict[str, Any]) -> None:
    async def play() -> None:
        made = server(**settings, max_loras=3)
        await made.run_server(args())
        assert "answered_by" not in (await made.generate([1], {}, "r")).extra_fields
        await made.wake_up()

    asyncio.run(play())
    assert verls == [vars(args()), ("woken", None)]


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


@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_that_nothing_breaks_off_is_handed_over_once(whole: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts of tokens need no rendering, and words are looked for only where they end a response."""
    asked: list[dict[str, Any]] = []

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        asked.append(sampling_params)
        async for output in self.engine.generate({"prompt_token_ids": prompt_ids, "multi_modal_data": {}}):
            prompt = output.prompt
        return TokenOutput(token_ids=[1], extra_fields={"prompt": prompt})

    monkeypatch.setattr(vLLMHttpServer, "generate", generate)

    async def play() -> list[TokenOutput]:
        made = server(lora_rank=0)
        await made.run_server(args())
        requests = [{"sampling_params": more, "whole": whole} for more in ({}, {"stop": ["."]})]
        requests = [{**request, "prompt_ids": [1, 2], "request_id": "r"} for request in requests]
        ended = [answers async for answers in made.generate_many(requests)]
        return [output for answers in ended for _, output in answers]

    for output in asyncio.run(play()):
        assert output.extra_fields["prompt"] == {"type": "token", "prompt_token_ids": [1, 2]}
    assert [request["detokenize"] for request in asked] == [False, True]
    assert all((request.get("output_kind") == RequestOutputKind.FINAL_ONLY) == whole for request in asked)
