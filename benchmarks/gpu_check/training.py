"""Stages ``train``, ``lora``, ``fp32`` and ``two_cards``: the recipe's programs with the tiny model."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import psutil

from benchmarks.runs import ONLY_STEPS, begin_of, seconds_of, steps_of
from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.players.records import GameRecord
from recipe.spiral.storage.run_files import Logged

from .engine import LORA, other_weights
from .machine import CACHE, SHARE, nvidia_smi, small_engine
from .running import is_alive
from .stages import Probe

_BATCH = ("model=tiny", "data.train_batch_size=32", "actor_rollout_ref.actor.optim.lr=1e-3", "seed=3")
_POOL = ("fsp.enabled=true", "fsp.update_interval=1", "fsp.ratio=0.5")
_KL = ("actor_rollout_ref.actor.use_kl_loss=true", "ref_update_freq=2", "ref_update_rate=0.9")
_LORA = (
    f"actor_rollout_ref.model.lora_rank={LORA['r']}",
    f"actor_rollout_ref.model.lora_alpha={LORA['lora_alpha']}",
    f"actor_rollout_ref.model.target_modules={LORA['target_modules']}",
    # a rate at which one step changes the adapter so much that answers without it would be noticed
    "actor_rollout_ref.actor.optim.lr=2e-2",
)
_FP32 = (
    "actor_rollout_ref.rollout.dtype=float32",
    "actor_rollout_ref.actor.fsdp_config.mixed_precision={param_dtype: fp32, reduce_dtype: fp32, buffer_dtype: fp32}",
    # flash attention computes in 16 bits only
    "++actor_rollout_ref.model.override_config.attn_implementation=spiral_packed",
)
#: By type: lowest correlation of the engine's and the trainer's probabilities, and the largest mean difference.
#: On a GPU vLLM's attention multiplies float32 in TF32.
AGREEMENT = {"fp32": (0.9999, 1e-4), "tf32": (0.9999, 1e-3), "bf16": (0.98, 0.02)}
#: verl's names of what it measures of the engine's probabilities against the trainer's.
PROBABILITIES = {
    "correlation": "training/rollout_actor_probs_pearson_corr",
    "mean difference": "training/rollout_probs_diff_mean",
    "largest difference": "training/rollout_probs_diff_max",
}


def train(probe: Probe) -> None:
    """Six steps with a pool, KL and a renewed reference, of which a kill takes one away."""
    run = Training(probe, *_BATCH, *_POOL, *_KL, "trainer.total_training_steps=6", "trainer.save_freq=2")
    run.kill_in(3)
    run.run("the same call after SIGKILL")
    run.check_steps(6)
    kinds = {record.opponent for record in run.games()}
    probe.check("games against past selves", "pool" in kinds, f"opponents: {', '.join(sorted(kinds))}")
    renewed = [step.step for step in run.steps() if step.metrics.get("ref/updated")]
    probe.check("the reference is renewed", renewed == [2, 4, 6], f"after steps {renewed}")
    fresh, old = (abs(kl) for kl in run.metric("actor/kl_loss")[-2:])
    probe.check("KL is small after it, and then grows", fresh < old, f"step 5: {fresh:.1e}, step 6: {old:.1e}")
    run.check_probabilities("bf16")
    programs(probe, run.looked_at())
    # what a kill made an orphan came here
    left = [str(process) for process in psutil.Process().children(recursive=True) if is_alive(process)]
    probe.check("no process is left, and so no memory of a card", not left, ", ".join(left))


def lora(probe: Probe) -> None:
    """Past selves as adapters of the policy's engine; what was trained is exported, and evaluated beside two models."""
    length = ("trainer.total_training_steps=3", "trainer.save_freq=3")
    kl = "actor_rollout_ref.actor.use_kl_loss=true"
    run = Training(probe, *_BATCH, *_POOL, "fsp.members_per_step=2", *_LORA, kl, *length)
    run.run()
    run.check_steps(3)
    members = {name for record in run.games() if record.opponent == "pool" for name in record.players}
    probe.check("games against several past selves", len(members) > 2, f"players: {', '.join(sorted(members))}")
    moved = [abs(value) for value in run.metric("actor/kl_loss")]
    probe.check("the adapter has moved", moved[-1] > 1e-2, f"KL to the base by step: {_few(moved)}")
    run.check_probabilities("bf16")
    other = other_weights(embedded("tiny"), probe.work / "other", seed=1)
    small = ["opponents=[random]", "games_per_role=16", "exploitability.games=[]", "optimality.games=[]"]
    small += small_engine(probe)
    models = f"policies=[tiny, {{kind: model, name: other, path: {other}}}]"
    # an engine with the adapter, and one that loads two models: side by side, as each takes long to start
    evaluations = {
        "the run is evaluated": ["main_eval", f"eval_dir={probe.work / 'of_run'}", f"policies=[{run.folder}]", *small],
        "two models are evaluated": ["main_eval", f"eval_dir={probe.work / 'of_models'}", models, *small],
    }
    programs(probe, run.looked_at() | evaluations)


def fp32(probe: Probe) -> None:
    """Two steps; in the second one the engine has weights that were sent to it. The other stages compute in bf16."""
    run = Training(probe, *_BATCH, *_FP32, "trainer.total_training_steps=2")
    run.run()
    run.check_probabilities("fp32" if probe.on_cpu else "tf32")


def two_cards(probe: Probe) -> None:
    """Shards, weights and games over two ranks."""
    if not probe.on_cpu and (there := len(nvidia_smi("name"))) < 2:
        probe.skip(f"it needs two cards, and there is {there}")
    length = ("trainer.n_gpus_per_node=2", "trainer.total_training_steps=2", "trainer.save_freq=2")
    run = Training(probe, *_BATCH, *_POOL, *_KL, *length)
    run.run()
    run.check_steps(2)
    run.check_probabilities("bf16")
    shards = sorted(path.name for path in run.folder.glob("checkpoints/global_step_2/actor/model_world_size_2_*.pt"))
    probe.check("a shard of each rank", len(shards) == 2, ", ".join(shards))
    programs(probe, run.looked_at())


class Training:
    """A training run of this stage, with Hydra's overrides, and what it leaves in its folder."""

    def __init__(self, probe: Probe, *overrides: str) -> None:
        self.probe, self.folder = probe, probe.work / "run"
        # engines take little of a card, and do not look at what others take
        engines = [
            f"actor_rollout_ref.rollout.gpu_memory_utilization={SHARE}",
            f"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={CACHE}",
            f"opponent_engine.gpu_memory_utilization={SHARE}",
        ]
        self._call = [
            "main_spiral",
            f"run_dir={self.folder}",
            f"hardware={probe.hardware}",
            "trainer.n_gpus_per_node=1",
            *([] if probe.on_cpu else engines),
            *ONLY_STEPS,
            "ray_kwargs.ray_init.log_to_driver=true",
            *overrides,
        ]

    def run(self, name: str = "the run") -> None:
        """Train to the end; the stage ends if that fails. What was measured is noted, also if it is ended before."""
        begin, process = time.time(), _start(self._call)
        try:
            status = process.wait()
        finally:
            steps = self.steps()
            if fresh := [step for step in steps if step.time > begin]:
                self.probe.figure("seconds from the call to the first step", round(begin_of(fresh[0]) - begin, 1))
                self.probe.figure("seconds of the first step", seconds_of(steps[0]))
                self.probe.figure("seconds of the last step", seconds_of(steps[-1]))
                self.probe.figure("probabilities", {name: self.metric(key) for name, key in PROBABILITIES.items()})
        self.probe.need(f"{name} ends well", status == 0, f"exit status {status}")

    def kill_in(self, step: int) -> None:
        """Start, and send SIGKILL after this step; the stage ends if the run ended before."""
        process = _start(self._call)
        while process.poll() is None and len(self.steps()) < step:
            time.sleep(0.2)
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.probe.need(f"the run reaches step {step}", not ended)

    def steps(self) -> list[Logged]:
        return steps_of(self.folder)

    def metric(self, name: str) -> list[float]:
        """A metric's value in each step that has one."""
        return [value for step in self.steps() if (value := step.metrics.get(name)) is not None]

    def games(self) -> list[GameRecord]:
        return list(RecordFolder(self.folder / "games").read("train"))

    def check_steps(self, last: int) -> None:
        """Check that each step is there, with a gradient that is finite."""
        good = {step.step for step in self.steps() if step.metrics.get("actor/grad_norm") is not None}
        wrong = sorted(set(range(1, last + 1)) - good)
        self.probe.check(f"{last} steps with finite gradients", not wrong, f"wrong: {wrong}" if wrong else "")

    def check_probabilities(self, dtype: str) -> None:
        """Check that the engine's probabilities are the trainer's, in every step."""
        lowest, largest = AGREEMENT[dtype]
        correlation, difference = (self.metric(PROBABILITIES[name]) for name in ("correlation", "mean difference"))
        good = min(correlation, default=0.0) >= lowest and max(difference, default=1.0) <= largest
        text = f"correlation {_few(correlation)} (at least {lowest}), "
        text += f"mean difference {_few(difference)} (at most {largest:g})"
        self.probe.check("the engine has the trainer's weights", good, text)

    def looked_at(self) -> dict[str, list[str]]:
        """What a user does with a run that is over: programs, by the check's name."""
        return {
            "the audit finds no problem": ["audit", str(self.folder)],
            "the export equals the checkpoint": ["export", str(self.folder), f"{self.probe.work}/exported", "--verify"],
        }


def programs(probe: Probe, calls: Mapping[str, list[str]]) -> None:
    """Check that programs, which run side by side, end with status 0."""
    started = {name: _start(call) for name, call in calls.items()}
    for name, process in started.items():
        status = process.wait()
        probe.check(name, status == 0, f"exit status {status}")


def _start(call: list[str]) -> subprocess.Popen[bytes]:
    """Start a program of the recipe; what it prints comes into the stage's log."""
    print(f"$ python -m recipe.spiral.{' '.join(call)}", flush=True)
    return subprocess.Popen([sys.executable, "-m", f"recipe.spiral.{call[0]}", *call[1:]])


def _few(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"
