"""Adds up what a run needs: on each GPU by the phases of a step, on the host, and on the disk; on a CPU the host alone.

The figures are estimates from above. On a CPU they were compared with measured peaks (``tests/lab/planning``), and
``benchmarks.gpu_check`` is to do so on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from omegaconf import DictConfig

from ...checks.combinations import has_critic
from ...opponents.engine_settings import has_adapter
from . import engines
from . import trainer_memory as training
from .model_size import ModelSize

GIB = 2**30
#: The trainer's process on a GPU: its context, communication and libraries' buffers, and what fragments leave unused.
TRAINER = 3 * GIB // 2
#: The share of a GPU that may be planned with: fragments, and what the estimate does not know, take the rest.
PLANNED = 0.95
#: Processes of a run on the host: those that each run has, those of each rank, and an opponent's server.
PROCESSES, RANK, SERVER = 5 * GIB, 5 * GIB // 2, GIB


@dataclass(frozen=True)
class Row:
    """A part: its name, its bytes, and what is to be said of it."""

    name: str
    size: int
    note: str = ""


@dataclass(frozen=True)
class Phase:
    """What is there at the same time."""

    name: str
    rows: tuple[Row, ...]

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)


@dataclass(frozen=True)
class Estimate:
    """What a run needs."""

    device: int  # bytes of one GPU, or of the machine where the run is on a CPU
    place: str  # how the device is called
    phases: tuple[Phase, ...]  # what is on one device; the larger one counts
    host: tuple[Row, ...]  # what lies in the memory of one machine besides
    disk: tuple[Row, ...]  # checkpoints
    own: int  # devices that opponents need besides the policy's, on all machines
    short: tuple[str, ...]  # what to say of each engine that does not get the memory to start

    @property
    def peak(self) -> Phase:
        return max(self.phases, key=lambda phase: phase.size)

    @property
    def fits(self) -> bool:
        share = PLANNED if len(self.phases) > 1 else 1
        return not self.short and self.peak.size <= share * self.device


def estimate(config: DictConfig, model: ModelSize, device: int) -> Estimate:
    """What a run needs; ``device``: bytes of one GPU, on a CPU of the machine."""
    policy = training.of(config, model)
    critic = training.of(config, model, critic=True) if has_critic(config) else None
    disk = tuple(_disk(config, model, critic is not None))
    own_engine = engines.of_policy(config, model)
    opponent, beside, own = engines.of_opponents(config, model)
    trained = tuple(_trained(policy, critic))
    apart = config.trainer.v1.trainer_mode == "separate_async"  # the engine has devices of its own
    if config.trainer.device == "cpu":
        ranks = int(config.trainer.n_gpus_per_node)
        rows = [Row(row.name, ranks * row.size, row.note) for row in trained]
        rows.append(Row("reference policy", ranks * policy.reference))
        rollout = config.actor_rollout_ref.rollout
        devices = int(rollout.nnodes) * int(rollout.n_gpus_per_node) if apart else ranks
        rows.append(Row("policy's engine", devices * own_engine.taken(device)))
        slots = beside * ranks + own
        rows.append(Row("opponents' engines", slots * (opponent.taken(device) + SERVER), f"{slots}"))
        rows.append(Row("processes", PROCESSES + (ranks - 1) * RANK))
        return Estimate(device, "the machine", (Phase("training", _there(rows)),), (), disk, own, ())
    asleep = 0 if apart else own_engine.asleep + beside * opponent.asleep
    sent = config.actor_rollout_ref.rollout.checkpoint_engine
    # verl: of the rank that sends; CuPy, whose they are, gives nothing back
    buffers = 2 * int(sent.update_weights_bucket_megabytes) * 2**20 if apart and sent.backend == "nccl" else 0
    update = [
        *trained,
        Row("engines, asleep", asleep),
        Row("buffers of sent weights", buffers),
        Row("trainer's process", TRAINER),
    ]
    played = [
        Row("policy's engine", own_engine.taken(device), _share(own_engine)),
        Row("opponents' engines", beside * opponent.taken(device), f"{beside} of {_share(opponent)}"),
        Row("weights and optimizer", 0 if apart else policy.resident + (critic.resident if critic else 0)),
        Row("contexts and graphs", asleep + TRAINER),
    ]
    nodes = int(config.trainer.n_gpus_per_node)
    kept = sum(part.on_host + part.offloaded + part.reference for part in (policy, critic) if part)
    master = training.width(config.actor_rollout_ref.actor.fsdp_config.model_dtype, "fp32")
    # verl: where weights are shared, every rank reads all of them
    read = model.parameters * master * (nodes if model.tied else 1)
    # verl: engines that take adapters keep their weights on the host while they sleep
    asleep_there = nodes * own_engine.weights if has_adapter(config) and not apart else 0
    # verl: a copy from which log-probabilities could be computed again
    copied = 0 if not apart or config.algorithm.rollout_correction.bypass_mode else nodes * policy.weights
    host = (
        Row("reference and offloaded", nodes * kept),
        Row("weights before an update", copied),
        Row("engines' weights, asleep", asleep_there),
        Row("processes", PROCESSES + nodes * RANK, f"and {read / GIB:.1f} at the start, while weights are read"),
    )
    short = [_short(own_engine, device)]
    if beside or own:
        short.append(_short(opponent, device))
    phases = (Phase("training", _there(update)), Phase("playing", _there(played)))
    return Estimate(device, "each GPU", phases, _there(list(host)), disk, own, tuple(filter(None, short)))


def _trained(policy: training.Training, critic: training.Training | None) -> Iterator[Row]:
    parts = [policy] if critic is None else [policy, critic]
    largest = max(parts, key=lambda part: part.peak - part.weights - part.gradients - part.optimizer)
    yield Row("weights", sum(part.weights for part in parts))
    yield Row("gradients", sum(part.gradients for part in parts))
    yield Row("optimizer", sum(part.optimizer for part in parts))
    computed = (largest.gathered, largest.activations, largest.logits)
    if sum(computed) >= largest.update:
        yield Row("gathered layers", largest.gathered)
        yield Row("activations", largest.activations)
        yield Row("logits", largest.logits)
    else:
        yield Row("the optimizer's step", largest.update)


def _disk(config: DictConfig, model: ModelSize, critic: bool) -> Iterator[Row]:
    rank = int(config.actor_rollout_ref.model.lora_rank or 0)
    trained, part = model.adapter * rank or model.parameters, config.actor_rollout_ref.actor.fsdp_config
    master = training.width(part.model_dtype, "fp32")
    size = (model.parameters + (trained if rank else 0) + 2 * trained) * master
    size += 3 * model.parameters * training.width(config.critic.fsdp.model_dtype, "fp32") if critic else 0
    kept, every = config.trainer.max_actor_ckpt_to_keep, int(config.trainer.save_freq)
    # verl also saves at the last step
    saves = math.ceil(int(config.trainer.total_training_steps) / every) if every > 0 else 0
    number = min(int(kept), saves) + 1 if kept else saves
    if saves:
        yield Row("checkpoints", number * size, f"{number} of {size / GIB:.1f}, one of them being written")
    if config.fsp.enabled:
        weights = trained if has_adapter(config) else model.parameters
        yield _pool(config, weights * training.width(config.actor_rollout_ref.rollout.dtype))


def _pool(config: DictConfig, member: int) -> Row:
    """Past selves of so many bytes: those in the pool, and those that only checkpoints hold any more. Too few where
    checkpoints lie on another disk than the pool: these hold copies of all."""
    fsp, steps, save_freq = config.fsp, int(config.trainer.total_training_steps), int(config.trainer.save_freq)
    every, kept = fsp.update_interval, int(config.trainer.max_actor_ckpt_to_keep or 0)
    made = 0 if every is None else max(steps - fsp.start_from, 0) // every + 1
    made += fsp.size if fsp.initial else 0
    inside = min(fsp.size + 1, made)
    # how many leave at most from one checkpoint to the next
    leaving = min(fsp.size, math.ceil(save_freq / every)) if every and save_freq > 0 else fsp.size
    held = min(made - inside, kept * leaving) if kept else made - inside
    also = f", and {held} that have left it and are held by checkpoints" if held else ""
    return Row("pool", (inside + held) * member, f"{inside} of {member / GIB:.1f}, one of them being written{also}")


def _share(engine: engines.Engine) -> str:
    room = f"weights {engine.weights / GIB:.1f}, cache {engine.cache / GIB:.1f} or more"
    return f"{engine.share:g} of the GPU: {room}"


def _short(engine: engines.Engine, device: int) -> str:
    if engine.share is None or engine.least <= engine.share * device:
        return ""
    needed = engine.least / device
    return (
        f"{engine.setting}={engine.share:g}: is {engine.share * device / GIB:.1f} GiB, and the engine needs "
        f"{engine.least / GIB:.1f} to start (weights {engine.weights / GIB:.1f}, cache of one prompt and response "
        f"{engine.cache / GIB:.1f}): {needed:.2f} or more"
    )


def _there(rows: list[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.size)
