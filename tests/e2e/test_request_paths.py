"""What our servers ask of vLLM beside verl's request changes no token and no log-probability.

A real engine gets the same requests twice: as verl makes them, with an output and its text for each token, and as
``VLLMServer.generate_many`` changes them.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from verl.workers.rollout.replica import TokenOutput

from recipe.spiral.processes.composing import detect_hardware
from recipe.spiral.workers.engine.vllm import VLLMServer

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "recipe/spiral/shipped/tiny"
pytestmark = [pytest.mark.e2e, pytest.mark.full]

#: vLLM in one process, which must not be this one: it keeps a default of its own for each patch.
PROGRAM = """
import json, os, sys
if os.environ["SPIRAL_HARDWARE"] == "cpu":
    from recipe.spiral.workers.platforms import cpu_vllm
from vllm import EngineArgs, SamplingParams
from vllm.v1.engine.llm_engine import LLMEngine

settings, prompts, ways = json.loads(sys.argv[1])
engine = LLMEngine.from_engine_args(EngineArgs(**settings))
for way, sampling in ways.items():
    for number, (prompt, one) in enumerate(zip(prompts, sampling)):
        engine.add_request(f"{way}-{number}", {"prompt_token_ids": prompt}, SamplingParams(**one))
answers, texts = {}, set()
while engine.has_unfinished_requests():
    for output in engine.step():
        if output.finished:
            last = output.outputs[0]
            texts |= {output.request_id.split("-")[0]} if last.text else set()
            ids = list(last.token_ids)
            answers[output.request_id] = ids, [at[token].logprob for at, token in zip(last.logprobs, ids)]
print("ANSWERS", json.dumps([answers, sorted(texts)]))
"""
ON_A_CPU = {
    "dtype": "float32",
    "enable_chunked_prefill": False,
    "kv_cache_memory_bytes": 67108864,
    "distributed_executor_backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
}


def changed(sampling: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sampling parameters as our server hands them to verl's ``generate``."""
    asked = []

    class Server(VLLMServer):
        def __init__(self) -> None:
            pass

        async def generate(self, *, sampling_params: Any, **request: Any) -> TokenOutput:  # type: ignore[override]
            asked.append({**sampling_params, "output_kind": sampling_params["output_kind"].value})
            return TokenOutput(token_ids=[1])

    async def run() -> None:
        async for _ in Server().generate_many([{"sampling_params": one} for one in sampling]):
            pass

    asyncio.run(run())
    return asked


def test_both_ways_give_the_same_tokens_and_log_probabilities() -> None:
    verls = [{"temperature": 1.0, "seed": seed, "max_tokens": 12, "logprobs": 0} for seed in range(48)]
    hardware = detect_hardware()
    settings = {"model": str(MODEL), "max_model_len": 128, "enforce_eager": True, "enable_prefix_caching": False}
    settings |= ON_A_CPU if hardware == "cpu" else {}
    prompts = [[5 + seed % 40, 7, 9] for seed in range(48)]
    given = json.dumps([settings, prompts, {"verls": verls, "ours": changed(verls)}])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, given],
        cwd=ROOT,
        env={**os.environ, "SPIRAL_HARDWARE": hardware, "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers, with_text = json.loads(done.stdout.split("ANSWERS ")[1].splitlines()[0])
    assert with_text == ["verls"], "ours make no text"
    assert len(answers) == 96
    for seed in range(48):
        (verls_ids, verls_log_probs), (ids, log_probs) = answers[f"verls-{seed}"], answers[f"ours-{seed}"]
        assert ids == verls_ids
        assert log_probs == pytest.approx(verls_log_probs, abs=1e-4), "rounding may differ with the batch"
