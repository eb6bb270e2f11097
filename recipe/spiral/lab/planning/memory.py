"""Estimates what a run takes of the memory of each GPU, or on a CPU of the machine, as a table and a warning.

The figures are estimates from above, by the formulas of docs/gpu.md: the state of FSDP's shard, what a micro-batch
needs, and what vLLM's engines are given.
"""

from __future__ import annotations

import math
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from omegaconf import DictConfig, OmegaConf

from ...opponents.engine_settings import has_adapter, models_served
from ...processes.terminal import note

GIB = 2**30
_LIMIT = Path("/sys/fs/cgroup/memory.max")
#: Where there is no GPU: a card of 80 GB as its driver counts it. The share of a GPU that may be planned with.
USUAL, PLANNED = 79.6 * GIB, 0.95
#: Contexts and buffers of the trainer, and of an engine, also while it sleeps; and the processes of a run on the host.
TRAINER, ENGINE, PROCESSES = 1.5 * GIB, 1.8 * GIB, 5 * GIB
_MEND = (
    "if memory runs out, lower actor_rollout_ref.rollout.gpu_memory_utilization or "
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu, or take LoRA or more GPUs (docs/gpu.md)"
)

#: Bytes by the name of the part, by what is going on.
Estimate = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Size:
    """What of a model decides how much memory it takes: parameters, and widths in elements for each token."""

    parameters: int
    outside: int  # of the layers: the output layer, gathered through a step
    layer: int
    layers: int
    hidden: int
    wide: int  # all of a layer's projections together
    vocabulary: int
    adapter: int  # LoRA's parameters at rank 1 on all linear layers


def size_of(config: Any) -> Size:
    """Of a transformers config, by a model without weights.

    Raises:
        ValueError: transformers knows no such model, or not what its layers are.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    names = set(getattr(model, "_no_split_modules", None) or ())
    blocks = [module for module in model.modules() if type(module).__name__ in names]
    if not blocks:
        raise ValueError(f"{type(model).__name__} has no layers that transformers names")
    head, text = model.get_output_embeddings(), config.get_text_config()
    linear = [module for module in model.modules() if isinstance(module, torch.nn.Linear) and module is not head]
    first = [module for module in blocks[0].modules() if isinstance(module, torch.nn.Linear)]
    return Size(
        parameters=sum(weight.numel() for weight in model.parameters()),
        outside=head.weight.numel(),
        layer=max(sum(weight.numel() for weight in block.parameters()) for block in blocks),
        layers=len(blocks),
        hidden=text.hidden_size,
        wide=sum(module.out_features for module in first),
        vocabulary=text.vocab_size,
        adapter=sum(module.in_features + module.out_features for module in linear),
    )


def estimate(config: DictConfig, size: Size, device: float) -> Estimate:
    """What a run takes of one GPU of so many bytes, while it trains and while it plays; on a CPU of the machine."""
    settings, actor = config.actor_rollout_ref, config.actor_rollout_ref.actor
    fsdp, rank = actor.fsdp_config, int(settings.model.lora_rank or 0)
    on_cpu, nodes = config.trainer.device == "cpu", int(config.trainer.nnodes)
    ranks = int(config.trainer.n_gpus_per_node) * nodes
    shards = min(ranks, int(fsdp.fsdp_size)) if int(fsdp.fsdp_size) > 0 else ranks
    trained = size.adapter * rank or size.parameters
    away = 0 if fsdp.offload_policy and not on_cpu else 4 / shards  # bytes of an element that each rank has
    state = {
        "weights": (size.parameters + (trained if rank else 0)) * away,
        "gradients": trained * away,
        "optimizer": 2 * trained * away,
    }
    served = 0 if has_adapter(config) else models_served(config)  # adapters are the policy's engine's
    width = 4 if on_cpu else 2  # bytes of what is computed
    turn = int(config.data.max_prompt_length) + int(config.data.max_response_length)
    tokens = max(int(actor.ppo_max_token_len_per_gpu), turn) if actor.use_dynamic_bsz else turn
    layer = tokens * (10 * size.hidden + 3.5 * size.wide) * width  # kept and computed for the backward pass
    whole = layer * size.layers
    again = tokens * size.hidden * width * size.layers + layer
    training = {
        **state,
        "gathered layers": 2 * (size.outside + 2 * size.layer) * width,
        "activations": again if settings.model.enable_gradient_checkpointing else whole,
        "logits": 1.1 * tokens * size.vocabulary * width,
    }
    if on_cpu:
        reference = 4 * size.parameters if actor.use_kl_loss and not rank else 0
        cache = OmegaConf.select(settings.rollout, "engine_kwargs.vllm.kv_cache_memory_bytes") or 0
        engines = (1 + served) * (8 * size.parameters + int(cache))
        machine = {name: ranks * part for name, part in training.items()}
        return {"all at once": {**machine, "reference": reference, "engines": engines, "processes": PROCESSES}}
    apart = config.trainer.v1.trainer_mode == "separate_async"
    beside = math.ceil(served / ranks) if config.opponent_engine.devices == "shared" else 0
    sleeping = 0 if apart else (1 + beside) * ENGINE
    stays = fsdp.param_offload or apart, fsdp.optimizer_offload or apart
    playing = {
        "policy's engine": float(settings.rollout.gpu_memory_utilization) * device,
        "opponents' engines": beside * float(config.opponent_engine.gpu_memory_utilization) * device,
        "weights": 0 if stays[0] else state["weights"],
        "optimizer": 0 if stays[1] else state["optimizer"],
        "contexts": sleeping + TRAINER,
    }
    return {"training": {**training, "contexts": sleeping + TRAINER}, "playing": playing}


def gpu_memory() -> int | None:
    """Bytes of this machine's smallest GPU, as the driver says, without starting CUDA; None: there is none."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        sizes = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.split()
    except (OSError, subprocess.SubprocessError):
        return None
    return min((int(mib) * 2**20 for mib in sizes if mib.isdecimal()), default=None)


def host_memory() -> int:
    """Bytes that the processes of this machine, or of this container, may have together."""
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else ""
    return min(psutil.virtual_memory().total, int(limit) if limit.isdecimal() else psutil.virtual_memory().total)


def table(config: DictConfig, size: Size) -> list[str]:
    """Lines for people; the last one is a warning where the estimate does not fit."""
    on_cpu, there = config.trainer.device == "cpu", gpu_memory()
    device = host_memory() if on_cpu else there or USUAL
    where = "the machine" if on_cpu else "each GPU" if there else "each GPU, taken for one of 80 GB"
    lines = [f"memory of {where} ({device / GIB:.1f} GiB), in GiB, estimated"]
    most = 0.0
    for phase, parts in estimate(config, size, device).items():
        total = sum(parts.values())
        most = max(most, total)
        shown = ", ".join(f"{name} {part / GIB:.1f}" for name, part in parts.items() if part >= GIB / 20)
        lines.append(f"  {phase} {total / GIB:.1f}: {shown}")
    if most > (1 if on_cpu else PLANNED) * device:
        lines.append(f"  this is more than there is: {_MEND}")
    return lines


def check_memory(config: DictConfig) -> None:
    """Print the table where the run is on GPUs, and the warning where it may not fit."""
    from transformers import AutoConfig

    model = config.actor_rollout_ref.model
    try:
        size = size_of(AutoConfig.from_pretrained(model.path, trust_remote_code=bool(model.trust_remote_code)))
    except (OSError, ValueError, AttributeError) as error:
        note(f"memory: cannot be estimated for this model: {' '.join(str(error).split())}")
        return
    lines = table(config, size)
    if config.trainer.device != "cpu":
        print("\n".join(lines), flush=True)
    elif lines[-1].endswith(_MEND):
        note("\n".join(lines))
