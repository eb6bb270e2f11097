"""The fast runtime's servers between verl's and vLLM: what they put around the engine, and what an answer says."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer
from vllm.inputs import TokensPrompt
from vllm.sampling_params import RequestOutputKind

from recipe.spiral.rollouts.pace import ENGINE_SECONDS
from recipe.spiral.runtime.server import FastServer, FastSlotServer, TokenPrompts
from recipe.spiral.workers.engine.adapters import ChoosingEngine
from tests.workers.engine.fakes import Engine


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The sampling parameters that reach verl's server."""
    seen: list[dict[str, Any]] = []

    async def run_server(self: Any, args: Namespace) -> None:
        self.engine = Engine()

    async def generate(self: Any, prompt_ids: list[int], sampling_params: Any, request_id: str) -> TokenOutput:
        seen.append(sampling_params)
        return TokenOutput(token_ids=[1], extra_fields={})

    for method in (run_server, generate):
        monkeypatch.setattr(vLLMHttpServer, method.__name__, method)
    return seen


async def running(kind: type[Any], lora_rank: int = 0) -> Any:
    made = object.__new__(kind)
    made.config = SimpleNamespace(engine_kwargs={})
    made.model_config = SimpleNamespace(lora_rank=lora_rank, lora={"merge": False})
    await made.run_server(Namespace(max_loras=2, max_lora_rank=8, max_cpu_loras=None))
    return made


@pytest.mark.parametrize("kind", [FastServer, FastSlotServer])
def test_prompts_of_tokens_go_past_vllms_renderers(kind: type[Any]) -> None:
    made = asyncio.run(running(kind))
    assert isinstance(made.engine, TokenPrompts) and isinstance(made.engine._engine, Engine)
    with_adapters = asyncio.run(running(kind, lora_rank=8)).engine
    assert isinstance(with_adapters, ChoosingEngine) and isinstance(with_adapters._engine, TokenPrompts)


@pytest.mark.parametrize("kind", [FastServer, FastSlotServer])
@pytest.mark.parametrize("whole", [True, False])
def test_an_answer_says_how_long_it_took(kind: type[Any], whole: bool, asked: list[dict[str, Any]]) -> None:
    async def play() -> TokenOutput:
        made = await running(kind)
        made._submission_paused, made._name = False, "step-10"
        sampling = {"max_tokens": 3, "stop": ["."]}
        output: TokenOutput = await made.answer(sampling, whole, prompt_ids=[1], request_id="r")
        assert sampling == {"max_tokens": 3, "stop": ["."]}, "the caller's own stays as it is"
        return output

    output = asyncio.run(play())
    assert output.extra_fields[ENGINE_SECONDS] >= 0
    assert output.extra_fields.get("answered_by") == ("step-10" if kind is FastSlotServer else None)
    assert (asked[0].get("output_kind") == RequestOutputKind.FINAL_ONLY) == whole
    assert asked[0]["detokenize"], "where words end a response, they are looked for"


class Answering:
    name = "vLLM"

    def generate(self, prompt: Any, **kwargs: Any) -> Any:
        return prompt, kwargs


@pytest.mark.parametrize(
    "empty", [{}, {"multi_modal_data": {}}, {"multi_modal_data": {}, "mm_processor_kwargs": {"a": 1}}]
)
def test_tokens_are_an_engines_input(empty: dict[str, Any]) -> None:
    made: Any = TokenPrompts(Answering())
    prompt, others = made.generate(prompt=TokensPrompt(prompt_token_ids=[1, 2], **empty), request_id="r", priority=1)
    assert prompt == {"type": "token", "prompt_token_ids": [1, 2]} and others == {"request_id": "r", "priority": 1}
    assert made.name == "vLLM", "all else is the engine's"


def test_a_prompt_with_an_image_stays_as_it_is() -> None:
    with_image: Any = {"prompt_token_ids": [1], "multi_modal_data": {"image": "pixels"}}
    made: Any = TokenPrompts(Answering())
    assert made.generate(with_image)[0] is with_image
