"""Stages ``qwen3_0.6b`` and ``qwen3_1.7b``: models of Qwen3's shapes with random weights, made here; no download.

Such a model writes tokens at random, so that its responses reach the length limit and each game ends at its first turn.
What it costs is what a trained model of its shape would cost for these turns.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass
from pathlib import Path

from recipe.spiral.storage.metrics_file import Logged

from .cards import Watch, peaks
from .engine import Engine
from .probe import Probe, SkipStage
from .programs import Training, seconds_of
from .settings import tiny_model
from .training import on


@dataclass(frozen=True)
class Shape:
    """A model and a run with it.

    Attributes:
        hidden, layers, heads, kv_heads, intermediate, vocabulary: as in Qwen3's config.
        response: length of each response in tokens.
        games: number of games of a step; each is one turn.
        needs: GiB of a card that trainer and engine need, estimated.
    """

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int = 151_936
    head_dim: int = 128
    response: int = 1024
    games: int = 64
    needs: float = 0.0


#: huggingface.co/Qwen/Qwen3-0.6B and Qwen3-1.7B. Needs: 16 bytes a parameter for training, and logits and an engine.
SMALL = Shape(hidden=1024, layers=28, heads=16, kv_heads=8, intermediate=3072, needs=22)
LARGE = Shape(hidden=2048, layers=28, heads=16, kv_heads=8, intermediate=6144, needs=44)
#: On a CPU. The vocabulary is larger than the tokenizer's, as theirs are.
CPU_SMALL = Shape(64, 2, 2, 1, 128, vocabulary=2048, head_dim=32, response=64, games=8)
CPU_LARGE = Shape(96, 3, 3, 3, 192, vocabulary=2048, head_dim=32, response=64, games=8)
PROMPT = 512
EFFICIENCY = "rollout efficiency (tokens/s in play by those of the engine alone)"
MEMORY = "largest memory in use by phase, GiB"
STEPS = 3


def small(probe: Probe) -> None:
    _stage(probe, CPU_SMALL if probe.on_cpu else SMALL)


def large(probe: Probe) -> None:
    _stage(probe, CPU_LARGE if probe.on_cpu else LARGE)


def _stage(probe: Probe, shape: Shape) -> None:
    if not probe.on_cpu:
        import torch

        there = torch.cuda.get_device_properties(0).total_memory / 2**30
        if there < shape.needs:
            raise SkipStage(f"the card has {there:.0f} GiB, and this needs about {shape.needs:g}")
    model = make(shape, probe.work / "model", probe.device)
    alone = asyncio.run(_alone(probe, model, shape))
    with Watch(probe.on_cpu) as watch:
        run = Training(probe, "run", [*on(probe), *_overrides(model, shape)])
        run.run()
    run.check_steps(STEPS)
    steps = run.steps()
    lengths = [value(step, "turns/response_tokens") for step in steps]
    full = min(lengths, default=0.0) > 0.9 * shape.response
    probe.check("responses are as long as they may be", full, f"{min(lengths, default=0.0):.0f} tokens in the mean")
    probe.figure("seconds of a phase", run.seconds())
    tokens = [value(step, "turns/count") * length for step, length in zip(steps, lengths, strict=True)]
    in_play = [count / value(step, "timing_s/gen") for step, count in zip(steps, tokens, strict=True)]
    probe.figure("tokens/s in play, by step", [round(rate, 1) for rate in in_play])
    probe.figure(EFFICIENCY, round(max(in_play[1:]) / alone, 3))
    largest = max(value(step, "perf/max_memory_allocated_gb") for step in steps)
    probe.figure("trainer's largest memory in GiB", round(largest, 2))
    probe.figure(MEMORY, peaks(watch.seen, [(step.time, seconds_of(step)) for step in steps]))
    probe.check("memory was measured", bool(watch.seen), f"{len(watch.seen)} looks")
    probe.figure("engine and trainer, probabilities", run.probabilities())


def _overrides(model: Path, shape: Shape) -> list[str]:
    return [
        "model=hf",
        f"actor_rollout_ref.model.path={model}",
        "prompt.template=chat",
        f"data.train_batch_size={shape.games}",
        f"data.max_prompt_length={PROMPT}",
        f"data.max_response_length={shape.response}",
        "actor_rollout_ref.actor.ppo_epochs=1",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
        f"actor_rollout_ref.rollout.max_num_seqs={shape.games}",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=-1",
        "guard.action=off",
    ]


async def _alone(probe: Probe, model: Path, shape: Shape) -> float:
    """Tokens/s of the engine with all responses at once, the second time."""
    engine = Engine(probe.device, model, max_model_len=PROMPT + shape.response, max_num_seqs=shape.games)
    try:
        prompts = [[5 + number % 64, *range(5, 64)] for number in range(shape.games)]
        for _ in range(2):
            begin = time.monotonic()
            await asyncio.gather(
                *[engine.answer(p, temperature=1.0, seed=n, max_tokens=shape.response) for n, p in enumerate(prompts)]
            )
            rate = shape.games * shape.response / (time.monotonic() - begin)
            await engine.engine.reset_prefix_cache()
    finally:
        await engine.closed()
    probe.figure("tokens/s of the engine alone", round(rate, 1))
    return rate


def value(step: Logged, metric: str) -> float:
    """A metric of a step; 0 where it is none."""
    return step.metrics.get(metric) or 0.0


def make(shape: Shape, folder: Path, device: str) -> Path:
    """A model with random weights and the tiny model's tokenizer, whose vocabulary is filled up; returns ``folder``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, Qwen3Config

    tokenizer = AutoTokenizer.from_pretrained(tiny_model())
    tokenizer.model_max_length = PROMPT + shape.response
    tokenizer.save_pretrained(folder)
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text(encoding="utf-8"))
    # as plain entries: tokens that are added to a tokenizer make it slow
    content["model"]["vocab"] |= {token["content"]: token["id"] for token in content["added_tokens"]}
    content["model"]["vocab"] |= {f"<unused{number}>": number for number in range(len(tokenizer), shape.vocabulary)}
    file.write_text(json.dumps(content), encoding="utf-8")
    config = Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        intermediate_size=shape.intermediate,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
    model.save_pretrained(folder)
    if device == "cuda":  # torch would keep the model's memory for this process, beside the engine's and the trainer's
        del model
        torch.cuda.empty_cache()
    return folder
