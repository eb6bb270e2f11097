"""Stage ``speed``: how fast a model of Qwen3's shape is played and trained with, and what memory that takes.

The model is made here, with random weights, and its answers end anywhere, with a legal move (``long_answers``). A run
plays its games, and then the engine alone plays the same games (``rollout_efficiency``).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from benchmarks import long_answers
from benchmarks.rollout_efficiency import games_of, measure
from benchmarks.runs import seconds_of

from .machine import nvidia_smi
from .stages import Probe
from .training import Training

#: Steps of a run; the last one is measured.
STEPS = 2
#: Of a game; of an answer's longest length in means: one in fifty is cut off; and of a prompt in tokens.
TURNS, LONGEST, PROMPT = 3, 4, 384
_QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}


class Size(NamedTuple):
    """The model's config (None: the tiny model's), tokens of an answer in the mean, games of a step, and GiB of an
    engine's cache."""

    form: dict[str, Any] | None
    tokens: int
    games: int
    cache: float


#: By the GiB of a card that they need: Qwen3-1.7B's shape, and 0.6B's.
SIZES = {
    72: Size(_QWEN3 | {"hidden_size": 2048, "intermediate_size": 6144}, 256, 256, 12),
    36: Size(_QWEN3 | {"hidden_size": 1024, "intermediate_size": 3072}, 256, 64, 4),
}
ON_CPU = Size(None, 16, 16, 1 / 16)


def speed(probe: Probe) -> None:
    size, model = _size(probe), probe.work / "model"
    long_answers.make(model, size.tokens, size.form, probe.device)
    run = Training(
        probe,
        "model=hf",
        *long_answers.overrides(model, size.tokens, LONGEST, TURNS, PROMPT),
        f"data.train_batch_size={size.games}",
        "actor_rollout_ref.actor.ppo_epochs=1",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
        *([] if probe.on_cpu else ["actor_rollout_ref.rollout.gpu_memory_utilization=0.22"]),
        f"actor_rollout_ref.rollout.max_num_seqs={size.games}",
        f"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={round(size.cache * 2**30)}",
        f"trainer.total_training_steps={STEPS}",
    )
    run.run()
    run.check_steps(STEPS)
    step, games = run.steps()[-1], games_of(run.folder, STEPS)
    answered = sum(answer for game in games for _, answer in game)
    mean, invalid = step.metrics["turns/response_tokens"] or 0.0, step.metrics["turns/invalid"] or 0.0
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
        "model flops utilisation": step.metrics.get("perf/mfu/actor") or 0.0,
        "trainer's memory GiB": step.metrics.get("actor/perf/max_memory_allocated_gb") or 0.0,
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
    there = float(nvidia_smi("memory.total")[0]) / 2**10
    for needed, size in SIZES.items():
        if there >= needed:
            return size
    probe.skip(f"the card has {there:.0f} GiB, and this needs about {min(SIZES)}")
