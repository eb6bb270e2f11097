"""A checkpoint's weights: whole tensors from the shards of all ranks, and the model that they belong to."""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Shard  # which also lets torch.load read DTensors

from ..storage.checkpoints import REFERENCE, reference_file
from .source import ExportError, Source

Weights = dict[str, torch.Tensor]
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def read_weights(source: Source) -> Weights:
    """The whole weights of a checkpoint's policy, or of its reference. Raises ExportError: a shard is damaged, holds
    anything but tensors, or does not fit the others; or the reference is the model without its adapter."""
    shards = _read_shards(source, "actor")
    if not source.reference:
        return {name: join(name, [shard[name] for shard in shards]) for name in shards[0]}
    parts = _read_shards(source, REFERENCE)
    if not parts[0]:
        raise ExportError(f"--reference: the reference policy of {source.folder} is the model without its adapter")
    if unknown := parts[0].keys() - shards[0].keys():
        raise ExportError(f"{source.folder / REFERENCE}: the policy has no weights {', '.join(sorted(unknown)[:3])}")
    of_policy = {name: [shard[name] for shard in shards] for name in shards[0]}
    return {
        name: join(name, kept, [part.get(name, _local(shard)) for part, shard in zip(parts, kept, strict=True)])
        for name, kept in of_policy.items()
    }


def _read_shards(source: Source, part: str) -> list[Weights]:
    """What each rank wrote into a folder of the checkpoint."""
    folder = source.folder / part
    shards = [_read_shard(reference_file(folder, source.ranks, rank)) for rank in range(source.ranks)]
    for rank, shard in enumerate(shards):
        if shard.keys() != shards[0].keys():
            raise ExportError(f"{folder}: the weights of rank {rank} have other names than those of rank 0")
    return shards


def _local(weight: torch.Tensor) -> torch.Tensor:
    return weight.to_local() if isinstance(weight, DTensor) else weight


def _read_shard(file: Path) -> Weights:
    try:
        shard = torch.load(file, map_location="cpu", weights_only=True, mmap=True)  # nothing but tensors
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "GLOBAL" in line), "it is no file of weights")
        raise ExportError(f"{file}: refused, because it holds more than tensors: {reason}") from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ExportError(f"{file}: damaged, or not written by torch.save: {str(error).splitlines()[0]}") from error
    if not isinstance(shard, dict) or not all(isinstance(weight, torch.Tensor) for weight in shard.values()):
        raise ExportError(f"{file}: holds something other than tensors by name")
    return shard


def join(name: str, shards: Sequence[torch.Tensor], parts: Sequence[torch.Tensor] | None = None) -> torch.Tensor:
    """A whole weight from the parts of all ranks: those of ``shards``, or others that lie as they do. Raises
    ExportError: the parts do not make a whole, or are not sharded in FSDP's way."""
    first = shards[0]
    parts = parts or [_local(shard) for shard in shards]
    if not isinstance(first, DTensor):
        if not all(torch.equal(parts[0], part) for part in parts[1:]):
            raise ExportError(f"{name}: not sharded, and yet not the same on every rank")
        return parts[0]
    sharded = [(axis, kind) for axis, kind in enumerate(first.placements) if not kind.is_replicate()]
    if not sharded:
        return parts[0]
    (axis, kind), *more = sharded
    if more or type(kind) is not Shard:
        raise ExportError(f"{name}: sharded as {first.placements}; only FSDP's way, along one axis, is supported")
    ranks = _order(first, axis) if len(first.placements) > 1 else range(len(shards))
    if max(ranks) >= len(shards):
        raise ExportError(f"{name}: spread over {first.device_mesh.mesh.numel()} ranks, and there are {len(shards)}")
    whole = torch.cat([parts[rank] for rank in ranks], dim=kind.dim)
    if whole.shape != first.shape:
        raise ExportError(f"{name}: the ranks' parts make {tuple(whole.shape)}, not {tuple(first.shape)}")
    return whole


def _order(shard: DTensor, axis: int) -> list[int]:
    """The ranks whose parts make the whole, in order, where the mesh has a second axis: along it, with replicas (HSDP),
    all ranks have the same parts. Raises ExportError: another torch saved the mesh."""
    try:
        mesh = shard.device_mesh.mesh
    except AttributeError as error:
        raise ExportError(
            f"replicated shards (fsdp_size) of another torch than {torch.__version__} cannot be read: export the "
            "checkpoint with the torch that trained it"
        ) from error
    return list(mesh.movedim(axis, 0).reshape(mesh.shape[axis], -1)[:, 0].tolist())


def check_finite(weights: Mapping[str, torch.Tensor], dtype: str | None) -> None:
    """Raises ExportError if a weight is infinite or not a number."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            mend = "try --dtype bfloat16" if dtype == "float16" else "the training diverged; take an earlier step"
            raise ExportError(f"{name}: has values that are no finite {dtype or 'numbers'}; {mend}")


def empty_model(huggingface: Path) -> Any:
    """The model that a checkpoint's config describes, without weights."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        # "eager", because the training's attention may need a package that is not installed here.
        config = AutoConfig.from_pretrained(huggingface, trust_remote_code=False, attn_implementation="eager")
        with init_empty_weights():
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as error:  # what a config asks for can fail in any way
        raise ExportError(f"{huggingface / 'config.json'}: {type(error).__name__}: {error}") from error


def whole_model(huggingface: Path, weights: Weights) -> Any:
    """The model with exactly these weights. Raises ExportError: one is missing, unknown, or of another shape."""
    model = empty_model(huggingface)
    model.tie_weights()
    names: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(id(parameter), name)) != name:
            tied[name] = first
    own: Weights = {}
    for name, weight in weights.items():
        first = tied.get(name, name)
        other = own.setdefault(first, weight)
        if other is not weight and not torch.equal(other, weight):
            raise ExportError(f"{first} and {name} are one in the model and differ in the checkpoint")
    try:
        keys = model.load_state_dict(own, strict=False, assign=True)
    except RuntimeError as error:  # shapes
        raise ExportError(f"the weights do not fit {huggingface / 'config.json'}: {error}") from error
    missing = [name for name in keys.missing_keys if name not in tied]
    if missing or keys.unexpected_keys:
        wrong = [f"{name} is missing" for name in missing] + [f"{name} is unknown" for name in keys.unexpected_keys]
        raise ExportError(f"the weights do not fit {huggingface / 'config.json'}: {', '.join(wrong[:5])}")
    model.tie_weights()
    return model.eval()
