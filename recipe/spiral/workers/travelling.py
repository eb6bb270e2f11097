"""Going on from a checkpoint with the optimizer's settings that the start asks for, also where another version of torch
wrote it, which verl's own loading cannot read."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor
from verl.single_controller.base.decorator import Dispatch, register
from verl.workers.engine_workers import TrainingWorker

from ..storage.checkpoints import read_state
from .shards import on_mesh, read_shard

#: verl's files of a rank that hold parts of tensors, and the one that holds none.
_SHARDED, _WHOLE = ("model", "optim"), "extra_state"
#: What of an optimizer's settings is followed (training/kept_settings.py); a rate besides.
_FOLLOWED = ("weight_decay", "betas")


class TravellingWorker(TrainingWorker):
    """verl's worker, which keeps its own settings, and also reads checkpoints of another torch."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        saved, engine = Path(local_path), self.engine
        place: AbstractContextManager[Path] = nullcontext(saved)
        if read_state(saved.parent).get("torch") != torch.__version__:
            ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
            place = readable(saved, engine.module, ranks, rank)
        with place as folder, as_asked(engine.optimizer, engine.lr_scheduler):
            super().load_checkpoint(str(folder), hdfs_path, del_local_after_load)


@contextmanager
def as_asked(optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LambdaLR) -> Iterator[None]:
    """The block loads a checkpoint's state into both. Afterwards their settings are as before, and the rate is that of
    the step which the checkpoint has come to."""
    asked = [{name: group[name] for name in _FOLLOWED if name in group} for group in optimizer.param_groups]
    rates = list(schedule.base_lrs)
    yield
    schedule.base_lrs = rates
    for group, settings, rate, factor in zip(optimizer.param_groups, asked, rates, schedule.lr_lambdas, strict=True):
        group.update(settings, initial_lr=rate, lr=rate * factor(schedule.last_epoch))


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
