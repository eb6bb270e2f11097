"""Stages ``vllm_v1`` and ``vllm_v2``: vLLM alone, with the settings of the recipe's evaluation.

Answers are greedy ones of the tiny model, one request at a time, so that nothing but the weights decides them. Each
comes with its log-probabilities, and transformers computes the same ones on the CPU in full precision: so whatever the
engine did before (other weights, sleep, adapters), it is known whose weights answer.
"""

from __future__ import annotations

import asyncio
import importlib
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recipe.spiral.processes.launch import set_environment

from .cards import held
from .probe import Probe, SkipStage
from .settings import CACHE, HARDWARE, SHARE, adapter, composed, other_weights, tiny_model

PROMPTS = ("Where do you play?", "You are player 1. [bet] or [pass]?", "X . O", "The board is empty. \\boxed{")
TOKENS = 24
RUNNER = "VLLM_USE_V2_MODEL_RUNNER"
#: The largest mean difference between an engine's log-probabilities and transformers' in full precision, in nats, by
#: the engine's type. On a CPU transformers in bfloat16 differs by 0.02, and other weights than are meant by 0.9.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.06}


@dataclass(frozen=True)
class Answer:
    """A response: its tokens and their log-probabilities in nats."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    log_probs: tuple[float, ...]


class Engine:
    """One vLLM engine in processes of its own, as the evaluation starts it.

    Args:
        device: cuda or cpu.
        model: a Hugging Face folder.
        adapters: folders of LoRA adapters.
    """

    def __init__(self, device: str, model: Path, adapters: Sequence[Path] = ()) -> None:
        config = composed("eval", f"engine={HARDWARE[device]}")
        set_environment(OmegaConf.to_container(config.environment, resolve=True))
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from recipe.spiral.lab.evaluation.policies.evaluation_engine import EngineSettings, arguments

        chosen = OmegaConf.to_container(config.engine, resolve=True)
        chosen |= {"gpu_memory_utilization": SHARE, "max_num_seqs": 64}
        chosen["vllm"] |= {"kv_cache_memory_bytes": CACHE if device == "cuda" else 2**26}
        settings = EngineSettings(**chosen)
        for module in settings.modules:
            importlib.import_module(module)
        self.adapters = tuple(adapters)
        wanted = arguments(model, self.adapters, 512, settings) | {"enable_sleep_mode": device == "cuda"}
        self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**wanted))
        self._number = itertools.count()

    async def answer(self, prompt: Sequence[int], lora: Path | None = None, **sampling: Any) -> Answer:
        """A response of ``TOKENS`` tokens, greedy unless ``sampling`` says otherwise."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        parameters = SamplingParams(
            **({"temperature": 0.0, "max_tokens": TOKENS} | sampling), ignore_eos=True, logprobs=0, detokenize=False
        )
        request = None if lora is None else LoRARequest(str(lora), 1 + self.adapters.index(lora), str(lora))
        final: Any = None
        async for output in self.engine.generate(
            {"prompt_token_ids": list(prompt)}, parameters, str(next(self._number)), lora_request=request
        ):
            final = output
        whole = final.outputs[0]
        pairs = zip(whole.token_ids, whole.logprobs, strict=True)
        return Answer(
            tuple(prompt), tuple(whole.token_ids), tuple(logprobs[token].logprob for token, logprobs in pairs)
        )

    async def answers(self, prompts: Sequence[Sequence[int]], lora: Path | None = None) -> list[Answer]:
        """Greedy answers, one after another."""
        return [await self.answer(prompt, lora) for prompt in prompts]

    async def load(self, model: Path) -> None:
        """Other weights of the same architecture, as the opponents' engines take them."""
        await self.engine.collective_rpc("reload_weights", timeout=300, kwargs={"weights_path": str(model)})
        await self.engine.reset_prefix_cache(reset_connector=True)

    async def closed(self) -> None:
        self.engine.shutdown()


def v1(probe: Probe) -> None:
    _stage(probe, "0")


def v2(probe: Probe) -> None:
    from vllm.triton_utils import HAS_TRITON

    if not HAS_TRITON:
        raise SkipStage(
            "Model Runner V2 needs Triton, which works on GPUs only" if probe.on_cpu else "Triton is missing"
        )
    if probe.on_cpu:
        raise SkipStage("Model Runner V2 is for GPUs")
    _stage(probe, "1")


def _stage(probe: Probe, runner: str) -> None:
    os.environ[RUNNER] = runner
    model = tiny_model()
    other = other_weights(model, probe.work / "other", seed=1)
    adapters = [adapter(other, probe.work / f"adapter-{name}", seed) for seed, name in enumerate("xy")]
    of_other = asyncio.run(_one_model(probe, model, other))
    asyncio.run(_adapters(probe, other, adapters, of_other))


async def _one_model(probe: Probe, model: Path, other: Path) -> list[Answer]:
    """An engine that loads weights and sleeps; returns its answers with the other weights."""
    engine = Engine(probe.device, model)
    try:
        _describe(probe, engine)
        prompts = _tokens(model)
        right = Truth(probe, engine)
        first = right("answers", await engine.answers(prompts), model)
        await _seeded(probe, engine, prompts)
        together = await asyncio.gather(*[engine.answer(prompt) for prompt in prompts * 4])
        probe.figure("largest difference of log-probabilities in a batch", difference(first * 4, together))
        await engine.load(other)
        of_other = right("after reload_weights: the other weights answer", await engine.answers(prompts), other)
        apart = right.gap(of_other, model)[0]
        probe.check("the first weights would be noticed", apart > 2 * right.tolerance, f"{apart:.1e} nats in the mean")
        await engine.load(model)
        again = right("after reload_weights back: the first weights answer", await engine.answers(prompts), model)
        right.same("as at first", first, again)

        async def slept(level: int) -> None:
            before = held()
            await engine.engine.sleep(level=level)
            if before is not None:
                probe.figure(f"GiB before and in sleep {level}", [before, held()])
            await engine.engine.wake_up()

        async def discarded() -> None:
            await slept(2)
            await engine.load(model)

        async def kept() -> None:
            await slept(1)
            await engine.engine.reset_prefix_cache()

        await _asleep(probe, "after sleep 2, wake_up, reload_weights", discarded, right, engine, prompts, first, model)
        await _asleep(probe, "after sleep 1, wake_up", kept, right, engine, prompts, first, model)
        return of_other
    finally:
        await engine.closed()


async def _adapters(probe: Probe, model: Path, adapters: Sequence[Path], loaded: list[Answer]) -> None:
    """An engine with adapters of the model whose weights another engine has loaded: one with adapters cannot."""
    engine = Engine(probe.device, model, adapters)
    try:
        prompts, right = _tokens(model), Truth(probe, engine)
        base = right("with LoRA: the base", await engine.answers(prompts), model)
        right.same("after reload_weights: as of a fresh engine", loaded, base)
        first = [right(f"LoRA: {path.name}", await engine.answers(prompts, path), model, path) for path in adapters]
        together = [engine.answer(prompt, lora) for lora in (*adapters, None) for prompt in prompts]
        mixed = await asyncio.gather(*together)
        right.same("adapters and the base in one batch", [*first[0], *first[1], *base], mixed)

        async def kept() -> None:
            await engine.engine.sleep(level=1)
            await engine.engine.wake_up()
            await engine.engine.reset_prefix_cache()

        name = "after sleep 1, wake_up: the adapter"
        await _asleep(probe, name, kept, right, engine, prompts, first[0], model, adapters[0])
    finally:
        await engine.closed()


class Truth:
    """Compares an engine's answers with transformers' log-probabilities on the CPU in full precision."""

    def __init__(self, probe: Probe, engine: Engine) -> None:
        self._probe = probe
        dtype = str(engine.engine.vllm_config.model_config.dtype).removeprefix("torch.")
        self.tolerance = TOLERANCE.get(dtype, TOLERANCE["bfloat16"])
        probe.figure("type", dtype)

    def __call__(self, name: str, answers: list[Answer], model: Path, lora: Path | None = None) -> list[Answer]:
        """Check whose weights answered; returns the answers."""
        mean, largest = self.gap(answers, model, lora)
        self._probe.check(
            name,
            mean <= self.tolerance,
            f"log-probabilities differ from transformers' by {mean:.1e} nats in the mean, {largest:.1e} at most "
            f"(allowed is a mean of {self.tolerance:g})",
        )
        return answers

    @staticmethod
    def gap(answers: list[Answer], model: Path, lora: Path | None = None) -> tuple[float, float]:
        """Mean and largest difference of log-probabilities, in nats."""
        gaps = []
        for answer, true in zip(answers, true_log_probs(answers, model, lora), strict=True):
            gaps += [abs(ours - theirs) for ours, theirs in zip(answer.log_probs, true, strict=True)]
        return sum(gaps) / len(gaps), max(gaps)

    def same(self, name: str, expected: Sequence[Answer], answers: Sequence[Answer]) -> None:
        """Check that answers are the expected ones: up to rounding, which may make another token the likeliest one."""
        equal = sum(a.tokens == b.tokens for a, b in zip(expected, answers, strict=True))
        gap = difference(expected, answers)
        text = f"{equal} of {len(answers)} answers are the same; log-probabilities differ by {gap:.1e} nats at most"
        self._probe.check(name, gap <= 5 * self.tolerance and 2 * equal >= len(answers), text)


def difference(expected: Sequence[Answer], answers: Sequence[Answer]) -> float:
    """The largest difference of log-probabilities, up to the first token in which two answers differ."""
    gaps = [0.0]
    for a, b in zip(expected, answers, strict=True):
        for first, second, left, right in zip(a.tokens, b.tokens, a.log_probs, b.log_probs, strict=True):
            gaps.append(abs(left - right))
            if first != second:
                break
    return max(gaps)


def true_log_probs(answers: Sequence[Answer], model: Path, lora: Path | None = None) -> list[list[float]]:
    """Of each token of the answers, its log-probability in nats, by transformers."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if lora is not None:
        loaded = PeftModel.from_pretrained(loaded, lora).eval()
    rows = []
    for answer in answers:
        with torch.inference_mode():
            logits = loaded(torch.tensor([[*answer.prompt, *answer.tokens]])).logits[0, len(answer.prompt) - 1 : -1]
        log_p = torch.log_softmax(logits.double(), dim=-1)
        rows.append(log_p[range(len(answer.tokens)), list(answer.tokens)].tolist())
    return rows


async def _seeded(probe: Probe, engine: Engine, prompts: list[list[int]]) -> None:
    """The same seed gives the same answer, another seed another one."""

    async def sampled(seed: int) -> list[tuple[int, ...]]:
        await engine.engine.reset_prefix_cache()
        return [(await engine.answer(prompt, temperature=1.0, seed=seed)).tokens for prompt in prompts]

    first, again, others = await sampled(1), await sampled(1), await sampled(2)
    equal = sum(map(lambda a, b: a == b, first, again))
    probe.check("seeded answers repeat", equal == len(first), f"{equal} of {len(first)}")
    probe.check("another seed answers differently", first != others)


async def _asleep(
    probe: Probe,
    name: str,
    act: Callable[[], Awaitable[None]],
    right: Truth,
    engine: Engine,
    prompts: list[list[int]],
    expected: list[Answer],
    model: Path,
    lora: Path | None = None,
) -> None:
    """Put the engine to sleep and wake it; the answers are as before."""
    if probe.on_cpu:
        probe.skip(name, "vLLM cannot sleep on a CPU")
        probe.skip(f"{name}: as before", "vLLM cannot sleep on a CPU")
        return
    try:
        await act()
        right.same(f"{name}: as before", expected, right(name, await engine.answers(prompts, lora), model, lora))
    except Exception as error:  # the engine's, of whatever kind
        probe.check(name, False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def _describe(probe: Probe, engine: Engine) -> None:
    config = engine.engine.vllm_config
    runner = "V2" if config.use_v2_model_runner else "V1"
    probe.figure("runner", runner)
    wanted = "V2" if os.environ[RUNNER] == "1" else "V1"
    probe.check(f"the engine runs Model Runner {wanted}", runner == wanted, f"it runs {runner}")


def _tokens(model: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [tokenizer.encode(prompt) for prompt in PROMPTS]
