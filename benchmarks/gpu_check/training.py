"""Stages ``train``, ``lora``, ``eval``, ``logprobs`` and ``two_cards``: the recipe's programs with the tiny model."""

from __future__ import annotations

from contextlib import suppress

import psutil

from recipe.spiral.storage.record_folder import RecordFolder

from .cards import count, used
from .probe import Probe, SkipStage, StageFailed
from .programs import Training, tool
from .settings import LORA, adapter, other_weights, tiny_model

_BATCH = ("data.train_batch_size=32", "actor_rollout_ref.actor.optim.lr=1e-3", "seed=3")
_POOL = ("fsp.enabled=true", "fsp.update_interval=1", "fsp.ratio=0.5")
_KL = ("actor_rollout_ref.actor.use_kl_loss=true", "ref_update_freq=2")
_LORA = tuple(
    f"actor_rollout_ref.model.{key}"
    for key in (
        f"lora_rank={LORA['r']}",
        f"lora_alpha={LORA['lora_alpha']}",
        f"target_modules={LORA['target_modules']}",
    )
)
FSDP = "actor_rollout_ref.actor.fsdp_config"
#: By type: lowest correlation of the engine's and the trainer's probabilities, and the largest mean difference.
#: On a GPU vLLM's attention multiplies float32 in TF32.
AGREEMENT = {"fp32": (0.9999, 1e-4), "tf32": (0.9999, 1e-3), "bf16": (0.98, 0.02)}


def on(probe: Probe, cards: int = 1) -> list[str]:
    """Overrides for the device. The tiny model takes little of a card; vLLM takes the share that it is given."""
    shares = ["actor_rollout_ref.rollout.gpu_memory_utilization=0.3", "opponent_engine.gpu_memory_utilization=0.2"]
    return [f"trainer.n_gpus_per_node={cards}", *([] if probe.on_cpu else shares)]


def train(probe: Probe) -> None:
    """Six steps with a pool, KL and a renewed reference, of which a kill takes one away."""
    before = None if probe.on_cpu else used()
    last = 6
    length = [f"trainer.total_training_steps={last}", "trainer.save_freq=2"]
    run = Training(probe, "run", [*on(probe), *_BATCH, *_POOL, *_KL, *length])
    run.kill_in(3)
    run.run("the same call after SIGKILL")
    probe.check("it goes on from its checkpoint", "going on after step 2 of 6" in run.log())
    run.check_steps(last)
    steps = {step.step: step.metrics for step in run.steps()}
    players = {record.opponent for record in RecordFolder(run.folder / "games").read("train")}
    probe.check("games against past selves", "pool" in players, f"opponents: {', '.join(sorted(map(str, players)))}")
    kl = {step: abs(data.get("actor/kl_loss") or 0.0) for step, data in steps.items()}
    probe.figure("KL to the reference by step", [round(kl[step], 6) for step in sorted(kl)])
    renewed = [step for step, data in sorted(steps.items()) if data.get("ref/updated")]
    probe.check("the reference is renewed", renewed == [2, 4, 6], f"after steps {renewed}")
    fresh, old = kl.get(5, 0.0), kl.get(6, 0.0)
    probe.check("KL is small after it, and then grows", fresh < old, f"step 5: {fresh:.1e}, step 6: {old:.1e}")
    _agree(probe, "the engine has the trainer's weights", run, "bf16")
    probe.figure("seconds of a step", run.seconds())
    tool(probe, "the audit finds no problem", "recipe.spiral.audit", str(run.folder))
    target = probe.work / "exported"
    tool(probe, "the export equals the checkpoint", "recipe.spiral.export", str(run.folder), str(target), "--verify")
    left = _alive()
    probe.check("no process is left", not left, ", ".join(left))
    if before is None:
        probe.skip("no memory of the card is left in use", "there is no card")
    else:
        after = used()
        probe.check(
            "no memory of the card is left in use", after < before + 0.5, f"{before} GiB before, {after} GiB after"
        )


def lora(probe: Probe) -> None:
    """Past selves as adapters of the policy's engine; what was trained is exported, and evaluated."""
    length = ["trainer.total_training_steps=3", "trainer.save_freq=3"]
    # a rate at which one step changes the adapter so much that answers without it would be noticed
    moved = ["actor_rollout_ref.actor.optim.lr=2e-2", "actor_rollout_ref.actor.use_kl_loss=true"]
    run = Training(probe, "run", [*on(probe), *_BATCH, *_POOL, *_LORA, *moved, "fsp.members_per_step=2", *length])
    run.run()
    run.check_steps(3)
    records = list(RecordFolder(run.folder / "games").read("train"))
    members = {name for record in records if record.opponent == "pool" for name in record.players}
    probe.check("games against several past selves", len(members) > 2, f"players: {', '.join(sorted(members))}")
    kl = [abs(step.metrics.get("actor/kl_loss") or 0.0) for step in run.steps()]
    probe.check("the adapter has moved", bool(kl) and kl[-1] > 1e-2, f"KL to the base by step: {_few(kl)}")
    _agree(probe, "the engine answers with the trained adapter", run, "bf16")
    tool(probe, "the audit finds no problem", "recipe.spiral.audit", str(run.folder))
    target = probe.work / "exported"
    tool(probe, "the export equals the checkpoint", "recipe.spiral.export", str(run.folder), str(target), "--verify")
    _evaluation(probe, "the run is evaluated", f"policies=[{run.folder}]")


def evaluate(probe: Probe) -> None:
    """One engine loads two models, another one has an adapter."""
    model = tiny_model()
    other = other_weights(model, probe.work / "other", seed=1)
    x = adapter(model, probe.work / "x", seed=2)
    policies = f"{{kind: model, name: other, path: {other}}}, {{kind: adapter, name: x, path: {x}, base: {model}}}"
    _evaluation(probe, "three policies are evaluated", f"policies=[tiny, {policies}]")


def _evaluation(probe: Probe, name: str, policies: str) -> None:
    folder = probe.work / "evaluation"
    small = ["opponents=[random]", "games_per_role=16", "exploitability.games=[]", "optimality.games=[]"]
    share = [] if probe.on_cpu else ["engine.gpu_memory_utilization=0.4"]
    tool(probe, name, "recipe.spiral.main_eval", f"eval_dir={folder}", policies, *small, *share)


def logprobs(probe: Probe) -> None:
    """Two steps each in bf16 and fp32. In the second one the engine has weights that were sent to it."""
    for name, dtype in (("bf16", "bfloat16"), ("fp32", "float32")):
        types = f"{{param_dtype: {name}, reduce_dtype: fp32, buffer_dtype: fp32}}"
        # flash attention computes in 16 bits only
        torchs = "++actor_rollout_ref.model.override_config.attn_implementation=spiral_packed"
        computed = [f"actor_rollout_ref.rollout.dtype={dtype}", f"{FSDP}.mixed_precision={types}"]
        computed += [torchs] if name == "fp32" else []
        length = ["trainer.total_training_steps=2", "trainer.save_freq=-1"]
        run = Training(probe, name, [*on(probe), *_BATCH, *computed, *length])
        with suppress(StageFailed):  # it is noted; the other type may work
            run.run(f"{name}: the run")
            _agree(probe, f"{name}: engine and trainer agree", run, name)


def two_cards(probe: Probe) -> None:
    """Shards, weights and games over two ranks."""
    if not probe.on_cpu and (there := count()) < 2:
        raise SkipStage(f"it needs two cards, and there is {there}")
    length = ["trainer.total_training_steps=2", "trainer.save_freq=2"]
    run = Training(probe, "run", [*on(probe, cards=2), *_BATCH, *_POOL, *_KL, *length])
    run.run()
    run.check_steps(2)
    _agree(probe, "the engine has the trainer's weights", run, "bf16")
    probe.figure("seconds of a step", run.seconds())
    shards = sorted(path.name for path in run.folder.glob("checkpoints/global_step_2/actor/model_world_size_2_*.pt"))
    probe.check("a shard of each rank", len(shards) == 2, ", ".join(shards))
    tool(probe, "the audit finds no problem", "recipe.spiral.audit", str(run.folder))
    target = probe.work / "exported"
    tool(probe, "the export equals the checkpoint", "recipe.spiral.export", str(run.folder), str(target), "--verify")


def _alive() -> list[str]:
    """The names of the processes below this one. What a kill made an orphan came here, and once dead counts no more."""
    names = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE:
                names.append(process.name())
    return names


def _agree(probe: Probe, name: str, run: Training, dtype: str) -> None:
    """Check that the engine's probabilities are the trainer's, in every step."""
    found = run.probabilities()
    probe.figure(f"{name}: probabilities", found)
    lowest, largest = AGREEMENT["tf32" if dtype == "fp32" and not probe.on_cpu else dtype]
    probe.check(
        name,
        bool(found["correlation"])
        and min(found["correlation"]) >= lowest
        and max(found["mean difference"], default=1.0) <= largest,
        f"correlation {_few(found['correlation'])} (at least {lowest}), mean difference "
        f"{_few(found['mean difference'])} (at most {largest:g}), largest difference "
        f"{_few(found['largest difference'])}",
    )


def _few(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"
