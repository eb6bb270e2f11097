"""Stages ``train``, ``lora``, ``fp32`` and ``two_cards``: the recipe's programs with the tiny model."""

from __future__ import annotations

import json
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import psutil

from recipe.spiral.lab.models import embedded
from recipe.spiral.lab.record_folder import RecordFolder

from .engine import LORA, other_weights
from .machine import CACHE, HARDWARE, SHARE, nvidia_smi
from .stages import Probe, SkipStage

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
#: verl's names of what it measures of the engine's probabilities against the trainer's.
PROBABILITIES = {
    "correlation": "training/rollout_actor_probs_pearson_corr",
    "mean difference": "training/rollout_probs_diff_mean",
    "largest difference": "training/rollout_probs_diff_max",
}


def train(probe: Probe) -> None:
    """Six steps with a pool, KL and a renewed reference, of which a kill takes one away."""
    last = 6
    length = [f"trainer.total_training_steps={last}", "trainer.save_freq=2"]
    run = Training(probe, [*_on(probe), *_BATCH, *_POOL, *_KL, *length])
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
    run.check_probabilities("bf16")
    tools(probe, *run.looked_at())
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
    run = Training(probe, [*_on(probe), *_BATCH, *_POOL, *_LORA, *moved, "fsp.members_per_step=2", *length])
    run.run()
    run.check_steps(3)
    records = list(RecordFolder(run.folder / "games").read("train"))
    members = {name for record in records if record.opponent == "pool" for name in record.players}
    probe.check("games against several past selves", len(members) > 2, f"players: {', '.join(sorted(members))}")
    kl = [abs(step.get("actor/kl_loss") or 0.0) for step in run.steps()]
    probe.check("the adapter has moved", kl[-1] > 1e-2, f"KL to the base by step: {_few(kl)}")
    run.check_probabilities("bf16")
    other = other_weights(embedded("tiny"), probe.work / "other", seed=1)
    small = ["opponents=[random]", "games_per_role=16", "exploitability.games=[]", "optimality.games=[]"]
    if not probe.on_cpu:
        small += [f"engine.gpu_memory_utilization={SHARE}", f"++engine.vllm.kv_cache_memory_bytes={CACHE}"]
    models = f"policies=[tiny, {{kind: model, name: other, path: {other}}}]"
    of_run = [f"eval_dir={probe.work / 'of_run'}", f"policies=[{run.folder}]", *small]
    of_models = [f"eval_dir={probe.work / 'of_models'}", models, *small]
    # an engine with the adapter, and one that loads two models: side by side, as each takes long to start
    calls = ("the run is evaluated", "main_eval", of_run), ("two models are evaluated", "main_eval", of_models)
    tools(probe, *run.looked_at(), *calls)


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
    run = Training(probe, [*_on(probe), *_BATCH, *computed, *length])
    run.run()
    run.check_probabilities("fp32")


def two_cards(probe: Probe) -> None:
    """Shards, weights and games over two ranks."""
    if not probe.on_cpu and (there := len(nvidia_smi("name"))) < 2:
        raise SkipStage(f"it needs two cards, and there is {there}")
    length = ["trainer.total_training_steps=2", "trainer.save_freq=2"]
    run = Training(probe, [*_on(probe, cards=2), *_BATCH, *_POOL, *_KL, *length])
    run.run()
    run.check_steps(2)
    run.check_probabilities("bf16")
    shards = sorted(path.name for path in run.folder.glob("checkpoints/global_step_2/actor/model_world_size_2_*.pt"))
    probe.check("a shard of each rank", len(shards) == 2, ", ".join(shards))
    tools(probe, *run.looked_at())


def _on(probe: Probe, cards: int = 1) -> list[str]:
    """Overrides for the device: its engines take little of a card, and do not look at what others take."""
    engines = [
        f"actor_rollout_ref.rollout.gpu_memory_utilization={SHARE}",
        f"++actor_rollout_ref.rollout.engine_kwargs.vllm.kv_cache_memory_bytes={CACHE}",
        f"opponent_engine.gpu_memory_utilization={SHARE}",
    ]
    return [f"trainer.n_gpus_per_node={cards}", *([] if probe.on_cpu else engines)]


class Training:
    """A training run of this stage, with Hydra's overrides, and what it leaves in its folder."""

    def __init__(self, probe: Probe, overrides: Sequence[str]) -> None:
        self.probe, self.folder = probe, probe.work / "run"
        self._arguments = [
            f"run_dir={self.folder}",
            f"hardware={HARDWARE[probe.device]}",
            "trainer.logger=[file]",
            "trainer.val_before_train=false",
            "trainer.test_freq=-1",
            "ray_kwargs.ray_init.log_to_driver=true",
            *overrides,
        ]

    def run(self, name: str = "the run") -> None:
        """Train to the end; StageFailed if it fails. What was measured is noted, also if it is ended before."""
        begin, process = time.time(), _start("main_spiral", *self._arguments)
        try:
            status = process.wait()
        finally:
            steps = self.steps()
            if fresh := [step for step in steps if step["time"] > begin]:
                first = fresh[0]["time"] - fresh[0]["timing_s/step"] - begin
                self.probe.figure("seconds from the call to the first step", round(first, 1))
                self.probe.figure("seconds of the first step", seconds_of(steps[0]))
                later = list(map(seconds_of, steps[1:] or steps))
                names = sorted({name for step in later for name in step})
                medians = {name: statistics.median(step.get(name, 0.0) for step in later) for name in names}
                self.probe.figure("seconds of a step", medians)
                self.probe.figure("probabilities", self._probabilities())
        self.probe.need(f"{name} ends well", status == 0, f"exit status {status}")

    def kill_in(self, step: int) -> None:
        """Start, and send SIGKILL after this step; StageFailed if it ended before."""
        process = _start("main_spiral", *self._arguments)
        while process.poll() is None and len(self.steps()) < step:
            time.sleep(0.2)
        ended = process.poll() is not None
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.probe.need(f"the run reaches step {step}", not ended)

    def steps(self) -> list[dict[str, Any]]:
        """The metrics of each step, with its number and its time, in their order."""
        file = self.folder / "metrics.jsonl"
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.is_file() else []
        found = [{"number": line["step"], "time": line["time"], **line["metrics"]} for line in lines]
        return [step for step in found if "timing_s/step" in step]

    def check_steps(self, last: int) -> None:
        """Check that each step is there, with a gradient that is finite."""
        good = {step["number"] for step in self.steps() if step.get("actor/grad_norm") is not None}
        wrong = sorted(set(range(1, last + 1)) - good)
        self.probe.check(f"{last} steps with finite gradients", not wrong, f"wrong: {wrong}" if wrong else "")

    def check_probabilities(self, dtype: str) -> None:
        """Check that the engine's probabilities are the trainer's, in every step."""
        lowest, largest = AGREEMENT["tf32" if dtype == "fp32" and not self.probe.on_cpu else dtype]
        correlation, difference, _ = self._probabilities().values()
        good = bool(correlation) and min(correlation) >= lowest and max(difference, default=1.0) <= largest
        text = f"correlation {_few(correlation)} (at least {lowest}), "
        text += f"mean difference {_few(difference)} (at most {largest:g})"
        self.probe.check("the engine has the trainer's weights", good, text)

    def looked_at(self) -> list[tuple[str, str, list[str]]]:
        """What a user does with a run that is over."""
        exported = [str(self.folder), str(self.probe.work / "exported"), "--verify"]
        return [
            ("the audit finds no problem", "audit", [str(self.folder)]),
            ("the export equals the checkpoint", "export", exported),
        ]

    def _probabilities(self) -> dict[str, list[float]]:
        """Engine against trainer, of each step: what ``PROBABILITIES`` names."""
        steps = self.steps()
        return {name: [s[key] for s in steps if s.get(key) is not None] for name, key in PROBABILITIES.items()}


def seconds_of(step: dict[str, Any]) -> dict[str, float]:
    """Seconds of each phase of a step, by verl's names; ``step`` is all of it."""
    timers = {name.removeprefix("timing_s/"): value for name, value in step.items() if "timing_s/" in name}
    return {name: value for name, value in timers.items() if value is not None}


def tools(probe: Probe, *calls: tuple[str, str, list[str]]) -> None:
    """Check that programs, which run side by side, end with status 0; each a check's name, a module and arguments."""
    started = [(name, _start(module, *arguments)) for name, module, arguments in calls]
    for name, process in started:
        status = process.wait()
        probe.check(name, status == 0, f"exit status {status}")


def _start(module: str, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a program of the recipe; what it prints comes into the stage's log."""
    print(f"$ python -m recipe.spiral.{module} {' '.join(arguments)}", flush=True)
    return subprocess.Popen([sys.executable, "-m", f"recipe.spiral.{module}", *arguments])


def _few(values: list[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values) or "none"
