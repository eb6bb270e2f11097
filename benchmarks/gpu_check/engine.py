"""Stages ``vllm_v1`` and ``vllm_v2``: vLLM alone, with the settings of the recipe's evaluation.

Answers are greedy ones of the tiny model, one request at a time, so that nothing but the weights decides them. Each
comes with its log-probabilities, and transformers computes the same ones on the CPU in full precision: so whatever the
engine did before (other weights, sleep, adapters), it is known whose weights answer.
"""

from __future__ import annotations

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from .probe import Probe, SkipStage
from .settings import CACHE, HARDWARE, SHARE, adapter, composed, other_weights, prepare, tiny_model

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
    """One vLLM engine in processes of its own, as the evaluation starts it, with LoRA adapters from folders."""

    def __init__(self, probe: Probe, model: Path, adapters: Sequence[Path] = ()) -> None:
        config = composed("eval", f"engine={HARDWARE[probe.device]}")
        prepare(config)
        from vllm import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        from recipe.spiral.lab.evaluation.policies.evaluation_engine import EngineSettings, arguments

        chosen: Any = OmegaConf.to_container(config.engine, resolve=True)
        chosen |= {"gpu_memory_utilization": SHARE, "max_num_seqs": 64}
        chosen["vllm"] |= {"kv_cache_memory_bytes": 2**26 if probe.on_cpu else CACHE}
        self._probe, self.adapters, self._number = probe, tuple(adapters), itertools.count()
        wanted = arguments(model, self.adapters, 512, EngineSettings(**chosen)) | {
            "enable_sleep_mode": not probe.on_cpu
        }
        self.engine = AsyncLLM.from_engine_args(AsyncEngineArgs(**wanted))
        self.tolerance = TOLERANCE.get(str(self.engine.vllm_config.model_config.dtype).removeprefix("torch."), 0.06)

    async def answer(self, prompt: Sequence[int], lora: Path | None = None, **sampling: Any) -> Answer:
        """A response of ``TOKENS`` tokens, greedy unless ``sampling`` says otherwise."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest

        settings: dict[str, Any] = {"temperature": 0.0, "max_tokens": TOKENS, **sampling}
        parameters = SamplingParams(**settings, ignore_eos=True, logprobs=0, detokenize=False)
        request = None if lora is None else LoRARequest(str(lora), 1 + self.adapters.index(lora), str(lora))
        number = str(next(self._number))
        final: Any = None
        prompted: Any = {"prompt_token_ids": list(prompt)}
        async for output in self.engine.generate(prompted, parameters, number, lora_request=request):
            final = output
        whole = final.outputs[0]
        pairs = zip(whole.token_ids, whole.logprobs, strict=True)
        return Answer(tuple(prompt), tuple(whole.token_ids), tuple(given[token].logprob for token, given in pairs))

    async def answers(self, model: Path, name: str, lora: Path | None = None) -> list[Answer]:
        """Greedy answers, one after another. It is checked that these weights gave them."""
        return self.judge(name, [await self.answer(prompt, lora) for prompt in _tokens(model)], model, lora)

    def judge(self, name: str, answers: list[Answer], model: Path, lora: Path | None = None) -> list[Answer]:
        """Check that answers are of these weights."""
        mean = gap(answers, model, lora)
        text = f"log-probabilities differ from transformers' by {mean:.1e} nats (allowed: {self.tolerance:g})"
        self._probe.check(name, mean <= self.tolerance, text)
        return answers

    async def load(self, model: Path) -> None:
        """Other weights of the same architecture, as the opponents' engines take them."""
        await self.engine.collective_rpc("reload_weights", timeout=300, kwargs={"weights_path": str(model)})
        await self.engine.reset_prefix_cache(reset_connector=True)

    async def asleep(self, name: str, act: Callable[[], Awaitable[Any]], model: Path, lora: Path | None = None) -> None:
        """Put the engine to sleep and wake it; the same weights answer."""
        if self._probe.on_cpu:
            self._probe.skip(name, "vLLM cannot sleep on a CPU")
            return
        try:
            await act()
            await self.answers(model, name, lora)
        except Exception as error:  # the engine's, of whatever kind
            self._probe.check(name, False, f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")


def v1(probe: Probe) -> None:
    _stage(probe, "0")


def v2(probe: Probe) -> None:
    if probe.on_cpu:
        raise SkipStage("Model Runner V2 is for GPUs")
    from vllm.triton_utils import HAS_TRITON

    if not HAS_TRITON:
        raise SkipStage("Triton is missing")
    _stage(probe, "1")


def _stage(probe: Probe, runner: str) -> None:
    os.environ[RUNNER] = runner
    model = tiny_model()
    other = other_weights(model, probe.work / "other", seed=1)
    adapters = [adapter(other, probe.work / f"adapter-{name}", seed) for seed, name in enumerate("xy")]
    asyncio.run(_one_model(probe, model, other))
    asyncio.run(_adapters(probe, other, adapters))


async def _one_model(probe: Probe, model: Path, other: Path) -> None:
    """An engine that loads weights and sleeps."""
    engine = Engine(probe, model)
    try:
        runner, wanted = engine.engine.vllm_config.use_v2_model_runner, os.environ[RUNNER] == "1"
        probe.check(f"the engine runs Model Runner V{1 + wanted}", runner == wanted)
        await engine.answers(model, "answers")
        samples = [[await engine.answer(p, temperature=1.0, seed=s) for p in _tokens(model)] for s in (1, 1, 2)]
        once, again, others = ([answer.tokens for answer in sample] for sample in samples)
        probe.check("seeded answers repeat, and another seed answers differently", once == again != others)
        together = await asyncio.gather(*[engine.answer(prompt) for prompt in _tokens(model) * 4])
        engine.judge("answers in one batch", together, model)
        await engine.load(other)
        of_other = await engine.answers(other, "after reload_weights: the other weights answer")
        apart = gap(of_other, model)
        probe.check("the first weights would be noticed", apart > 2 * engine.tolerance, f"{apart:.1e} nats in the mean")
        await engine.load(model)
        await engine.answers(model, "after reload_weights back: the first weights answer")

        async def discarded() -> None:
            await engine.engine.sleep(level=2)
            await engine.engine.wake_up()
            await engine.load(model)

        await engine.asleep("after sleep 2, wake_up, reload_weights", discarded, model)
        await engine.asleep("after sleep 1, wake_up", lambda: _slept(engine), model)
    finally:
        engine.engine.shutdown()


async def _adapters(probe: Probe, model: Path, adapters: Sequence[Path]) -> None:
    """An engine with adapters."""
    engine = Engine(probe, model, adapters)
    try:
        await engine.answers(model, "with LoRA: the base")
        for path in adapters:
            await engine.answers(model, f"LoRA: {path.name}", path)
        prompts, served = _tokens(model), (*adapters, None)
        mixed = await asyncio.gather(*[engine.answer(prompt, lora) for lora in served for prompt in prompts])
        for place, lora in enumerate(served):
            part = mixed[place * len(prompts) : (place + 1) * len(prompts)]
            engine.judge(f"in one batch with the others: {lora.name if lora else 'the base'}", part, model, lora)
        name = "after sleep 1, wake_up: the adapter"
        await engine.asleep(name, lambda: _slept(engine), model, adapters[0])
    finally:
        engine.engine.shutdown()


async def _slept(engine: Engine) -> None:
    await engine.engine.sleep(level=1)
    await engine.engine.wake_up()
    await engine.engine.reset_prefix_cache()


def gap(answers: Sequence[Answer], model: Path, lora: Path | None = None) -> float:
    """The mean difference of log-probabilities from those that transformers computes of a model, in nats."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    if lora is not None:
        loaded = PeftModel.from_pretrained(loaded, lora).eval()
    gaps: list[float] = []
    for answer in answers:
        with torch.inference_mode():
            logits = loaded(torch.tensor([[*answer.prompt, *answer.tokens]])).logits[0, len(answer.prompt) - 1 : -1]
        log_p = torch.log_softmax(logits.double(), dim=-1)
        true = log_p[range(len(answer.tokens)), list(answer.tokens)].tolist()
        gaps += [abs(ours - theirs) for ours, theirs in zip(answer.log_probs, true, strict=True)]
    return sum(gaps) / len(gaps)


def _tokens(model: Path) -> list[list[int]]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model)
    return [tokenizer.encode(prompt) for prompt in PROMPTS]
