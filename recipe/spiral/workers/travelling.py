"""Going on from a checkpoint that another version of torch wrote, which verl's own loading cannot read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import TrainingWorker

from ..export.weights import on_mesh, read_shard
from ..storage.checkpoints import read_state

#: verl's files of a rank that hold parts of tensors, and the one that holds none.
_SHARDED, _WHOLE = ("model", "optim"), "extra_state"


class TravellingWorker(TrainingWorker):
    """verl's worker, which also reads checkpoints of another torch."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        if local_path is None or read_state(Path(local_path).parent).get("torch") == torch.__version__:
            super().load_checkpoint(local_path, hdfs_path, del_local_after_load)
            return
        ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
        with readable(Path(local_path), self.engine.module, ranks, rank) as folder:
            super().load_checkpoint(str(folder), None, False)


@contextmanager
def readable(saved: Path, module: torch.nn.Module, ranks: int, rank: int) -> Iterator[Path]:
    """A folder with this rank's files as this torch writes them, for the time that they are loaded.

    Args:
        saved: the folder of verl's files in a checkpoint, the actor's or a critic's.
        module: the sharded model that is to have the weights.
        ranks, rank: how many ranks there are, and which this is.
    """
    mesh = next((weight.device_mesh for weight in module.parameters() if isinstance(weight, DTensor)), None)
    with tempfile.TemporaryDirectory(prefix="spiral-checkpoint-") as temporary:
        folder, suffix = Path(temporary), f"_world_size_{ranks}_rank_{rank}.pt"
        for kind in _SHARDED:
            torch.save(on_mesh(read_shard(saved / (kind + suffix)), mesh), folder / (kind + suffix))
        shutil.copyfile(saved / (_WHOLE + suffix), folder / (_WHOLE + suffix))
        yield folder
