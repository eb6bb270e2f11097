"""Stages ``train``, ``lora``, ``fp32`` and ``two_cards``: the recipe's programs with the tiny model."""

from __future__ import annotations

from contextlib import suppress

import psutil

from recipe.spiral.lab.record_folder import RecordFolder

from .probe import Probe, SkipStage
from .programs import Training, tools
from .settings import CACHE, LORA, SHARE, nvidia_smi, other_weights, tiny_model

_BATCH = ("model=tiny", "data.train_batch_size=32", "actor_rollout_ref.actor.optim.lr=1e-3", "seed=3")
_POOL = ("fsp.enabled=true", "fsp.update_interval=1", "fsp.ratio=0.5")
_KL = ("actor_rollout_ref.actor.use_kl_loss=true", "ref_update_freq=2", "ref_update_rate=0.9")
_LORA = (
    f"actor_rollout_ref.model.lora_rank={LORA['r']}",
    f"actor_rollout_ref.model.lora_alpha={LORA['lora_alpha']}",
    f"actor_rollout_ref.model.target_modules={LORA['target_modules']}",
)
#: By type: lowest correlation of the engine's and the trainer's probabilities, and the largest mean difference.
#: On a GPU vLLM's attention multiplies float32 in TF32.
AGREEMENT = {"fp32": (0.9999, 1e-4), "tf32": (0.9999, 1e-3), "bf16": (0.98, 0.02)}


def on(probe: Probe, cards: int = 1) -> list[str]:
    """Overrides for the device: its engines take little of a card, and do not look at what others take."""
    engines = [
        f"actor_rollout_ref.rollout.gpu_memory_utilization={SHARE}",
        f"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={CACHE}",
        f"opponent_engine.gpu_memory_utilization={SHARE}",
    ]
    return [f"trainer.n_gpus_per_node={cards}", *([] if probe.on_cpu else engines)]


def train(probe: Probe) -> None:
    """Six steps with a pool, KL and a renewed reference, of which a kill takes one away."""
    last = 6
    length = [f"trainer.total_training_steps={last}", "trainer.save_freq=2"]
    run = Training(probe, [*on(probe), *_BATCH, *_POOL, *_KL, *length])
    run.kill_in(3)
    run.run("the same call after SIGKILL")
    run.check_steps(last)
    steps = {step["number"]: step for step in run.steps()}
    kinds = {record.opponent for record in RecordFolder(run.folder / "games").read("train")}
    probe.check("games against past selves", "pool" in kinds, f"opponents: {', '.join(sorted(map(str, kinds)))}")
    renewed = [number for number, step in sorted(steps.items()) if step.get("ref/updated")]
    probe.check("the reference is renewed", renewed == [2, 4, 6], f"after steps {renewed}")
    fresh, old = (abs(steps[number].get("actor/kl_loss") or 0.0) for number in (5, 6))
    probe.check("KL is small after it, and then grows", fresh < old, f"step 5: {fresh:.1e}, step 6: {old:.1e}")
    _agree(probe, run, "bf16")
    tools(probe, *_looked_at(probe, run))
    left = []  # what a kill made an orphan came here
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            left += [process.name()] if process.status() != psutil.STATUS_ZOMBIE else []
    probe.check("no process is left, and so no memory of a card", not left, ", ".join(left))


def lora(probe: Probe) -> None:
    """Past selves as adapters of the policy's engine; what was trained is exported, and evaluated beside two models."""
    length = ["trainer.total_training_steps=3", "trainer.save_freq=3"]
    # a rate at which one step changes the adapter so much that answers without it would be noticed
    moved = ["actor_rollout_ref.actor.optim.lr=2e-2", "actor_rollout_ref.actor.use_kl_loss=true"]
    run = Training(probe, [*on(probe), *_BATCH, *_POOL, *_LORA, *moved, "fsp.members_per_step=2", *length])
    run.run()
    run.check_steps(3)
    records = list(RecordFolder(run.folder / "games").read("train"))
    members = {name for record in records if record.opponent == "pool" for name in record.players}
    probe.check("games against several past selves", len(members) > 2, f"players: {', '.join(sorted(members))}")
    kl = [abs(step.get("actor/kl_loss") or 0.0) for step in run.steps()]
    probe.check("the adapter has moved", kl[-1] > 1e-2, f"KL to the base by step: {_few(kl)}")
    _agree(probe, run, "bf16")
    other = other_weights(tiny_model(), probe.work / "other", seed=1)
    small = ["opponents=[random]", "games_per_role=16", "exploitability.games=[]", "optimality.games=[]"]
    if not probe.on_cpu:
        small += [f"engine.gpu_memory_utilization={SHARE}", f"++engine.vllm.kv_cache_memory_bytes={CACHE}"]
    models = f"policies=[tiny, {{kind: model, name: other, path: {other}}}]"
    of_run = [f"eval_dir={probe.work / 'of_run'}", f"policies=[{run.folder}]", *small]
    of_models = [f"eval_dir={probe.work / 'of_models'}", models, *small]
    # an engine with the adapter, and one that loads two models: side by side, as each takes long to start
    calls = ("the run is evaluated", "main_eval", of_run), ("two models are evaluated", "main_eval", of_models)
    tools(probe, *_looked_at(probe, run), *calls)


def fp32(probe: Probe) -> None:
    """Two steps; in the second one the engine has weights that were sent to it. The other stages compute in bf16."""
    precision = "{param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}"
    computed = [
        "actor_rollout_ref.rollout.dtype=float32",
        f"actor_rollout_ref.actor.fsdp_config.mixed_precision={precision}",
        # flash attention computes in 16 bits only
        "++actor_rollout_ref.model.override_config.attn_implementation=spiral_packed",
    ]
    length = ["trainer.total_training_steps=2", "trainer.save_freq=-1"]
    run = Training(probe, [*on(probe), *_BATCH, *computed, *length])
    run.run()
    _agree(probe, run, "fp32")


def two_cards(probe: Probe) -> None:
    """Shards, weights and games over two ranks."""
    if not probe.on_cpu and (there := len(nvidia_smi("name"))) < 2:
        raise SkipStage(f"it needs two cards, and there is {there}")
    length = ["trainer.total_training_steps=2", "trainer.save_freq=2"]
    run = Training(probe, [*on(probe, cards=2), *_BATCH, *_POOL, *_KL, *length])
    run.run()
    run.check_steps(2)
    _agree(probe, run, "bf16")
    shards = sorted(path.name for path in run.folder.glob("checkpoints/global_step_2/actor/model_world_size_2_*.pt"))
    probe.check("a shard of each rank", len(shards) == 2, ", ".join(shards))
    tools(probe, *_looked_at(probe, run))


def _looked_at(probe: Probe, run: Training) -> list[tuple[str, str, list[str]]]:
    """What a user does with a run that is over."""
    return [
        ("the audit finds no problem", "audit", [str(run.folder)]),
        ("the export equals the checkpoint", "export", [str(run.folder), str(probe.work / "exported"), "--verify"]),
    ]


def _agree(probe: Probe, run: Training, dtype: str) -> None:
    """Check that the engine's probabilities are the trainer's, in every step."""
    found = run.probabilities()
    lowest, largest = AGREEMENT["tf32" if dtype == "fp32" and not probe.on_cpu else dtype]
    correlation, difference = found["correlation"], found["mean difference"]
    good = bool(correlation) and min(correlation) >= lowest and max(difference, default=1.0) <= largest
    limits = f"at least {lowest}", f"at most {largest:g}"
    text = f"correlation {_few(correlation)} ({limits[0]}), mean difference {_few(difference)} ({limits[1]})"
    probe.check("the engine has the trainer's weights", good, text)


def _few(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"
