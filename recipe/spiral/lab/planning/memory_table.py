"""The table of a run's memory, and the refusal of a run that does not fit, with the change that makes it fit."""

from __future__ import annotations

import math
import pickle
import sys
from collections.abc import Iterator, Sequence

from omegaconf import DictConfig, OmegaConf, open_dict

from ...checks import ConfigError
from ...processes.cluster import cluster_address
from ...processes.terminal import note, visible
from . import devices, engines
from .estimate import GIB, Estimate, Phase, Row, estimate
from .model_size import ModelSize, measure
from .trainer_memory import shards

_ACTOR = "actor_rollout_ref.actor"
#: A smaller part would be shown as 0.0.
_SHOWN = GIB / 20


def check_memory(config: DictConfig) -> Estimate | None:
    """Estimate what the run needs, print it, and refuse what cannot fit; None where the model is of an unknown form.

    Raises:
        ConfigError: it does not fit, and ``memory.on_excess`` is ``stop``.
    """
    try:
        model = measure(config.actor_rollout_ref.model.path, bool(config.actor_rollout_ref.model.trust_remote_code))
    except (OSError, ValueError, AttributeError) as error:
        reason = " ".join(str(error).split())
        print(visible(f"memory: cannot be estimated for this model: {reason}"), file=sys.stderr)
        return None
    size, known = device_memory(config)
    made = estimate(config, model, size)
    _own_devices(config, made.own)
    whole = config.trainer.device != "cpu"
    print("\n".join(table(made, known) if whole else [total(made)]), flush=True)
    if config.trainer.device != "cpu" and cluster_address(config) is None and (used := devices.gpu_in_use()) > GIB:
        note(
            f"{used / GIB:.1f} GiB of a GPU are in use already (nvidia-smi says by whom); vLLM does not start where "
            "its share is not free"
        )
    if not made.fits and known:
        text = refusal(config, model, made)
        if config.memory.on_excess == "stop":
            raise ConfigError(f"{text}; memory.on_excess=warn starts it anyway")
        note(text)
    return made


def _own_devices(config: DictConfig, own: int) -> None:
    """Check that there are GPUs for opponents besides the policy's; the devices of a CPU are counted by Ray."""
    if not own or cluster_address(config) is not None:
        return
    there = config.ray_kwargs.ray_init.get("num_gpus")
    if there is None:
        import torch

        there = torch.cuda.device_count()
    if (wanted := engines.devices(config)) > there:
        raise ConfigError(
            f"opponent_engine.devices=own: needs {wanted} devices ({own} for opponents), there are {there}; take fewer "
            f"opponents, shared (not in separate_async) or more GPUs (on a CPU ray_kwargs.ray_init.num_gpus={wanted})"
        )


def device_memory(config: DictConfig) -> tuple[int, bool]:
    """Bytes of a GPU (on a CPU: of the machine), and whether they are known; otherwise it is a card of 80 GB."""
    if config.memory.device_gib is not None:
        return int(config.memory.device_gib * GIB), True
    if config.trainer.device == "cpu":
        return devices.host_memory(), cluster_address(config) is None
    memory = devices.gpu_memory()
    return (int(devices.USUAL), False) if memory is None else (memory, True)


def table(made: Estimate, known: bool) -> list[str]:
    """Lines for people."""
    size = f"{made.device / GIB:.1f}" + ("" if known else ", taken for a card of 80 GB as there is none here")
    lines = [f"memory, in GiB, of {made.place} ({size}); estimated"]
    for phase in [*made.phases, *([Phase("on the host", made.host)] if made.host else [])]:
        lines.append(f"  {phase.name:<26}{phase.size / GIB:>6.1f}")
        lines += [_line(row, "    ") for row in phase.rows if row.size >= _SHOWN]
    lines += [_line(row) for row in made.disk if row.size >= _SHOWN]
    if made.own:
        lines.append(f"  opponents need {made.own} devices besides the policy's")
    lines.append(total(made))
    return lines


def total(made: Estimate) -> str:
    verdict = "" if made.fits else ", which does not fit"
    return (
        f"memory: about {made.peak.size / GIB:.1f} of {made.device / GIB:.1f} GiB of {made.place}, while "
        f"{made.peak.name}{verdict}"
    )


def _line(row: Row, indent: str = "  ") -> str:
    name = f"{indent}{row.name}"
    return f"{name:<28}{row.size / GIB:>6.1f}" + (f"   {row.note}" if row.note else "")


def refusal(config: DictConfig, model: ModelSize, made: Estimate) -> str:
    """What is too large, and what to set so that it fits."""
    what = made.short[0] if made.short else total(made).removeprefix("memory: ")
    change = mend(config, model, made.device)
    more = f"take {' '.join(change)}" if change else f"take {_cards(config, model, made.device)}"
    return f"memory: {what}; {more}"


def mend(config: DictConfig, model: ModelSize, device: int) -> Sequence[str] | None:
    """The shortest list of overrides after which the run fits; None: there is none."""
    tried: list[str] = []
    for override in _changes(config, model, device):
        tried = [old for old in tried if old.split("=")[0] != override.split("=")[0]] + [override]
        if estimate(changed(config, tried), model, device).fits:
            needed = list(tried)
            for dropped in tried:  # an earlier one may not be needed
                fewer = [other for other in needed if other != dropped]
                if fewer and estimate(changed(config, fewer), model, device).fits:
                    needed = fewer
            return needed
    return None


def changed(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    copied: DictConfig = pickle.loads(pickle.dumps(config))  # a fifth of the time of OmegaConf's own copy
    with open_dict(copied):
        copied.merge_with(OmegaConf.from_dotlist(list(overrides)))
    return copied


def _changes(config: DictConfig, model: ModelSize, device: int) -> Iterator[str]:
    """From those that cost nothing to those that make a step slower."""
    rollout, turn = config.actor_rollout_ref.rollout, config.data.max_prompt_length + config.data.max_response_length
    if config.trainer.device == "cpu":
        yield from _smaller(config, turn)
        return
    own, (opponent, beside, apart) = engines.of_policy(config, model), engines.of_opponents(config, model)
    ranks, cards = 1, int(config.trainer.n_gpus_per_node)
    while own.least > 0.9 * device and (ranks := 2 * ranks) <= cards and cards % ranks == 0:
        yield f"actor_rollout_ref.rollout.tensor_model_parallel_size={ranks}"
        config = changed(config, [f"actor_rollout_ref.rollout.tensor_model_parallel_size={ranks}"])
        own, (opponent, beside, apart) = engines.of_policy(config, model), engines.of_opponents(config, model)
    if beside or apart:
        least = math.ceil(100 * opponent.least / device + 1) / 100
        if least > (opponent.share or 0) and least < 0.9:
            yield f"{opponent.setting}={least:g}"
    for share in (0.5, 0.4, 0.3, 0.2):
        if share < rollout.gpu_memory_utilization and share * device >= own.least:
            yield f"{own.setting}={share:g}"
    least = math.ceil(100 * own.least / device + 1) / 100
    if rollout.gpu_memory_utilization < least < 0.9:
        yield f"{own.setting}={least:g}"
    yield from _smaller(config, turn)
    yield "actor_rollout_ref.model.enable_gradient_checkpointing=true"
    yield f"{_ACTOR}.fsdp_config.optimizer_offload=true"
    yield f"{_ACTOR}.fsdp_config.param_offload=true"
    yield f"{_ACTOR}.fsdp_config.offload_policy=true"


def _smaller(config: DictConfig, turn: int) -> Iterator[str]:
    tokens = int(config.actor_rollout_ref.actor.ppo_max_token_len_per_gpu)
    while tokens > turn:
        tokens = max(tokens // 2, turn)
        yield f"{_ACTOR}.ppo_max_token_len_per_gpu={tokens}"


def _cards(config: DictConfig, model: ModelSize, device: int) -> str:
    """How many GPUs of this size it would take, or that no number helps."""
    if config.trainer.device == "cpu":
        return "a smaller model, or a machine with more memory"
    count = int(config.trainer.n_gpus_per_node)
    while (count := 2 * count) <= 64:
        more = changed(config, [f"trainer.n_gpus_per_node={count}"])
        if count > shards(config, config.actor_rollout_ref.actor.fsdp_config) and mend(more, model, device) is not None:
            return f"{count * config.trainer.nnodes} GPUs of this size"
    return "LoRA (actor_rollout_ref.model.lora_rank=64), a smaller model, or larger GPUs"
