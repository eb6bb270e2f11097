"""The checkpoint to export, what is known of the run that wrote it, and its weights.

The parts of all ranks are joined, as by ``verl.model_merger``. That merger turns every weight into bfloat16, and
unpickles the files, which runs any code in them. Here weights keep their type, and only tensors are read.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf
from torch.distributed.tensor import DTensor, Shard

from ..storage.checkpoints import REFERENCE, folder_of, latest, read_whole, shard_file
from ..storage.run_files import config_file, load_config

Weights = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Source:
    """A checkpoint whose weights are whole, and what is known of its run.

    Attributes:
        folder: ``global_step_N``.
        state: SPIRAL's part of it.
        config: of the run's last start; empty if there is none.
        reference: the weights to export are the reference policy's.
    """

    folder: Path
    state: dict[str, Any]
    config: DictConfig
    reference: bool = False

    @classmethod
    def find(cls, path: Path, reference: bool = False) -> Source:
        """The checkpoint at ``path``, or the latest one of the run there. Raises ValueError: there is none, or its
        weights are not what was written."""
        path = path.expanduser().resolve()
        folder = path
        if not path.name.startswith("global_step_"):
            checkpoints = there if (there := folder_of(path)).is_dir() else path
            if (step := latest(checkpoints)) is None:
                raise ValueError(f"{checkpoints}: has no checkpoint")
            folder = checkpoints / f"global_step_{step}"
        state = read_whole(folder, ("actor/model_", "actor/huggingface/", f"{REFERENCE}/"))
        if reference and not (folder / REFERENCE).is_dir():
            raise ValueError(f"--reference: {folder} has no reference policy of its own (ref_update_freq)")
        file = config_file(path if config_file(path).is_file() else folder.parents[1])
        return cls(folder, state, load_config(file) if file.is_file() else OmegaConf.create(), reference)

    @property
    def huggingface(self) -> Path:
        """The folder of config, tokenizer and chat template."""
        return self.folder / "actor" / "huggingface"

    def weights(self) -> Weights:
        """The whole weights of the policy, or of its reference. What a reference of LoRA lacks is the policy's."""
        shards = self._shards("actor")
        parts = self._shards(REFERENCE) if self.reference else shards
        if not parts[0]:
            raise ValueError(f"--reference: the reference policy of {self.folder} is the model without its adapter")
        wanted = [{**shard, **part} for shard, part in zip(shards, parts, strict=True)]
        return {name: join(name, [s[name] for s in shards], [w[name] for w in wanted]) for name in shards[0]}

    def _shards(self, part: str) -> list[Weights]:
        """What each rank wrote into a folder of the checkpoint."""
        ranks = int(self.state["ranks"])
        files = [shard_file(self.folder / part, ranks, rank) for rank in range(ranks)]
        try:
            return [torch.load(file, map_location="cpu", weights_only=True, mmap=True) for file in files]
        except pickle.UnpicklingError as error:
            raise ValueError(
                f"{self.folder / part}: holds more than tensors, or was written by another torch than "
                f"{torch.__version__}: {str(error).splitlines()[0]}"
            ) from error


def join(name: str, shards: Sequence[torch.Tensor], parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """A whole weight from the ``parts`` of all ranks, which lie as ``shards`` do. Raises ValueError: they make no
    whole, or are not sharded in FSDP's way."""
    first = shards[0]
    local = [part.to_local() if isinstance(part, DTensor) else part for part in parts]
    if not isinstance(first, DTensor) or all(kind.is_replicate() for kind in first.placements):
        return local[0]
    (axis, kind), *more = [(axis, kind) for axis, kind in enumerate(first.placements) if not kind.is_replicate()]
    if more or type(kind) is not Shard:
        raise ValueError(f"{name}: sharded as {first.placements}; only FSDP's way, along one axis, is supported")
    # Where the mesh has a second axis, with replicas (HSDP), all ranks along it have the same parts.
    mesh = first.device_mesh.mesh
    ranks = mesh.movedim(axis, 0).reshape(mesh.shape[axis], -1)[:, 0].tolist()
    whole = torch.cat([local[rank] for rank in ranks], dim=kind.dim)
    if whole.shape != first.shape:
        raise ValueError(f"{name}: the ranks' parts make {tuple(whole.shape)}, not {tuple(first.shape)}")
    return whole
