"""From the shards of all ranks to whole weights, as they were saved; nothing but tensors is read."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path

import torch

# Importing it is what allows torch.load(weights_only=True) to read DTensors.
from torch.distributed.tensor import DTensor, Shard

from .errors import ExportError

Weights = dict[str, torch.Tensor]


def read_weights(actor: Path, ranks: int) -> Weights:
    """The weights of a checkpoint's ``actor`` folder, each whole, as they were saved.

    Raises:
        ExportError: a shard is damaged, holds anything but tensors, or does not fit the others.
    """
    shards = [_read_shard(actor / f"model_world_size_{ranks}_rank_{rank}.pt") for rank in range(ranks)]
    for rank, shard in enumerate(shards):
        if shard.keys() != shards[0].keys():
            raise ExportError(f"{actor}: the weights of rank {rank} have other names than those of rank 0")
    return {name: join(name, [shard[name] for shard in shards]) for name in shards[0]}


def _read_shard(file: Path) -> Weights:
    try:
        # a checkpoint may come from anyone: unpickled without weights_only, it could run anything
        shard = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "GLOBAL" in line), "it is no file of weights")
        raise ExportError(f"{file}: refused, because it holds more than tensors: {reason}") from error
    except (RuntimeError, EOFError, OSError, ValueError) as error:
        raise ExportError(f"{file}: damaged, or not written by torch.save: {str(error).splitlines()[0]}") from error
    if not isinstance(shard, dict) or not all(isinstance(weight, torch.Tensor) for weight in shard.values()):
        raise ExportError(f"{file}: holds something else than tensors by name")
    return shard


def join(name: str, shards: Sequence[torch.Tensor]) -> torch.Tensor:
    """One weight from what each rank has of it.

    Raises:
        ExportError: the parts do not make a whole, or are spread in a way that FSDP does not.
    """
    first = shards[0]
    if not isinstance(first, DTensor):
        if not all(torch.equal(first, shard) for shard in shards[1:]):
            raise ExportError(f"{name}: not sharded, and yet not the same on every rank")
        return first
    spread = [(axis, kind) for axis, kind in enumerate(first.placements) if not kind.is_replicate()]
    if not spread:
        return first.to_local()
    (axis, kind), *more = spread
    if more or type(kind) is not Shard:
        raise ExportError(f"{name}: sharded as {first.placements}; only FSDP's way, along one axis, is supported")
    # with replicas (HSDP) the mesh has a second axis, along which all ranks have the same
    mesh = first.device_mesh.mesh
    ranks = mesh.movedim(axis, 0).reshape(mesh.shape[axis], -1)[:, 0].tolist()
    if max(ranks) >= len(shards):
        raise ExportError(f"{name}: spread over {mesh.numel()} ranks, and there are {len(shards)}")
    parts = [shards[rank].to_local() for rank in ranks]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts, dim=kind.dim)
    if whole.shape != first.shape:
        raise ExportError(f"{name}: the ranks' parts make {tuple(whole.shape)}, not {tuple(first.shape)}")
    return whole
