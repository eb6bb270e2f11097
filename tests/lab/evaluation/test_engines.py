"""Which models are loaded when."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import cast

import pytest

from recipe.spiral.lab.evaluation import engines as those
from recipe.spiral.lab.evaluation.engines import Engines, Models, Served, VLLMEngine, arguments, models_of
from recipe.spiral.lab.evaluation.policies import Policy
from tests.lab.evaluation.made import Fakes, adapter, engine_settings

PATHS = [Path(f"/models/m{number}") for number in range(8)]


def model_policy(number: int, lora: Path | None = None) -> Policy:
    return Policy(f"p{number}{lora.name if lora else ''}", "adapter" if lora else "model", {}, PATHS[number], lora)


def pairs(count: int) -> dict[Models, str]:
    return {frozenset(pair): "games" for pair in combinations(PATHS[:count], 2)}


def test_a_round_robin_loads_about_one_model_a_pair() -> None:
    fakes, work = Fakes(), pairs(8)
    engines = Engines(fakes, [model_policy(number) for number in range(8)], work, lambda line: None)

    async def go() -> None:
        for models in sorted(work, key=sorted):
            await engines.load(models)
            assert models <= {engine.model for engine in fakes.running}

    asyncio.run(go())
    engines.close()
    loads = [event for event in fakes.events if event[0] != "close"]
    assert len(loads) <= 28 + 8, "28 pairs; two loads for each would be 56"
    assert sum(kind == "start" for kind, _ in loads) == 2, "engines are reloaded, not started again"
    assert fakes.most == 2 and fakes.shares == {2} and not fakes.running


def test_adapters_of_a_model_are_on_one_engine() -> None:
    first, second = Path("/lora/a"), Path("/lora/b")
    policies = [model_policy(0), model_policy(0, first), model_policy(0, second)]
    assert models_of(policies) == {PATHS[0]}
    fakes = Fakes()
    engines = Engines(fakes, policies, [models_of(policies)], lambda line: None)
    asyncio.run(engines.load(models_of(policies)))
    assert fakes.running[0].adapters == (first, second)
    assert engines.generate_as(policies[2])


def test_a_pools_member_ends_where_its_runs_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, given = Path("/models/started-from"), list[dict[str, object]]()

    async def done(*_: object, **__: object) -> bool:
        return True

    monkeypatch.setitem(
        sys.modules, "vllm", cast(ModuleType, SimpleNamespace(AsyncEngineArgs=lambda **more: given.append(more)))
    )
    vllm = SimpleNamespace(from_engine_args=lambda _: SimpleNamespace(collective_rpc=done, reset_prefix_cache=done))
    for module in ("vllm.v1.engine.async_llm", "vllm.v1.engine", "vllm.v1"):
        monkeypatch.setitem(sys.modules, module, cast(ModuleType, SimpleNamespace(AsyncLLM=vllm)))
    monkeypatch.setattr(those, "end_tokens", lambda folder: folder)
    monkeypatch.setattr(VLLMEngine, "fits", lambda *_: True)

    def start(served: Served, engines: int) -> VLLMEngine:
        return VLLMEngine(served, 8, engine_settings(dtype="float32"), engines)

    engines = Engines(start, [replace(model_policy(0), texts=texts), model_policy(1)], [], lambda line: None)
    ends = []
    for number in (0, 1, 0):
        asyncio.run(engines.load(frozenset({PATHS[number]})))
        ends.append(engines._running[0]._ends)
    assert ends == [texts, PATHS[1], texts] and [each["tokenizer"] for each in given] == [str(texts)]


def test_vllm_is_told_what_an_engine_is_for(tmp_path: Path) -> None:
    lora = [adapter(tmp_path / "a", rank=8), adapter(tmp_path / "b", rank=20)]
    settings = engine_settings(dtype="float32", gpu_memory_utilization=0.8, vllm={"max_num_batched_tokens": 99})
    told = arguments(Served(PATHS[0], tuple(lora)), 300, settings, 2)
    assert told["gpu_memory_utilization"] == 0.4 and told["max_model_len"] == 300
    assert told["max_lora_rank"] == 32 and told["max_cpu_loras"] == 2 and told["max_num_batched_tokens"] == 99
    assert "enable_lora" not in arguments(Served(PATHS[0]), 512, settings)
