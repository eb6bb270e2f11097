"""Stage ``speed``: how fast a model of Qwen3's shape is played and trained with, and what memory that takes.

The model is made here, with random weights, and its answers end anywhere, with a legal move (``long_answers``). A run
plays its games, and then the engine alone plays the same games (``rollout_efficiency``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import long_answers
from benchmarks.rollout_efficiency import games_of, measure

from .machine import nvidia_smi
from .stages import Probe, SkipStage
from .training import Training, seconds_of

#: Steps of a run; the last one is measured.
STEPS = 2
#: Of a game; of an answer's longest length in means: one in fifty is cut off; and of a prompt in tokens.
TURNS, LONGEST, PROMPT = 3, 4, 384


@dataclass(frozen=True)
class Size:
    """The fields of the model's config, tokens of an answer in the mean, games of a step, GiB of an
    engine's cache, and GiB of a card for all of this."""

    form: Mapping[str, Any]
    tokens: int = 256
    games: int = 256
    cache: float = 12.0
    needs: float = 0.0


_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
}
_QWEN3 |= {"head_dim": 128, "vocab_size": 151936, "max_position_embeddings": 32768, "tie_word_embeddings": True}
_QWEN3 |= {"architectures": ["Qwen3ForCausalLM"]}
#: Of Qwen3-1.7B's shape, and of 0.6B's.
SIZES = (
    Size({**_QWEN3, "hidden_size": 2048, "intermediate_size": 6144}, needs=72),
    Size({**_QWEN3, "hidden_size": 1024, "intermediate_size": 3072}, games=64, cache=4.0, needs=36),
)
_TINY = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2}
_TINY |= {"num_key_value_heads": 1, "head_dim": 32, "vocab_size": 4096}
ON_CPU = Size({**_QWEN3, **_TINY}, tokens=16, games=16, cache=1 / 16)


def speed(probe: Probe) -> None:
    size, model = _size(probe), probe.work / "model"
    long_answers.make(model, size.tokens, size.form, probe.device)
    settings = [
        "model=hf",
        *long_answers.overrides(model, size.tokens, LONGEST, TURNS, PROMPT),
        f"data.train_batch_size={size.games}",
        "actor_rollout_ref.actor.ppo_epochs=1",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
        f"actor_rollout_ref.rollout.max_num_seqs={size.games}",
        f"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={round(size.cache * 2**30)}",
        f"trainer.total_training_steps={STEPS}",
        "trainer.save_freq=-1",
    ]
    if not probe.on_cpu:
        settings += ["trainer.n_gpus_per_node=1", "actor_rollout_ref.rollout.gpu_memory_utilization=0.22"]
    run = Training(probe, settings)
    run.run()
    run.check_steps(STEPS)
    step, games = run.steps()[-1], games_of(run.folder, STEPS)
    answered = sum(answer for game in games for _, answer in game)
    mean, invalid = step.get("turns/response_tokens") or 0.0, step.get("turns/invalid") or 0.0
    probe.check("answers end anywhere", 0.7 < mean / size.tokens < 1.3, f"{mean:.0f} tokens in the mean")
    probe.check("answers are legal moves", invalid < 0.1, f"{invalid:.1%} are not")
    seconds = seconds_of(step)
    play, update = seconds["gen"], seconds["update_actor"]
    figures = {
        "play s": play,
        "tokens/s in play": answered / play,
        "step s": seconds["step"],
        "log-probs s": seconds.get("old_log_prob", 0.0),
        "update s": update,
        "new weights s": seconds.get("update_weights", 0.0),
        "tokens/s in update": (answered + sum(len(prompt) for game in games for prompt, _ in game)) / update,
        "model flops utilisation": step.get("perf/mfu/actor") or 0.0,
        "trainer's memory GiB": step.get("actor/perf/max_memory_allocated_gb") or 0.0,
    }
    probe.figure("speed", figures)
    (row,) = measure(run.folder, steps=1, repeats=1)
    (alone,) = row["alone"]
    figures |= {"engine alone s": alone, "engine alone tokens/s": answered / alone, "efficiency": alone / play}
    probe.figure("speed", figures)
    probe.check("the engine alone played the same games", 0 < alone / play < 2, f"efficiency {alone / play:.2f}")


def _size(probe: Probe) -> Size:
    if probe.on_cpu:
        return ON_CPU
    there = float(nvidia_smi("memory.total")[0][0]) / 2**10
    for size in SIZES:
        if there >= size.needs:
            return size
    raise SkipStage(f"the card has {there:.0f} GiB, and this needs about {SIZES[-1].needs:g}")
