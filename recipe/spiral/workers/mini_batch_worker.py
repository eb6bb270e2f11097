"""verl's worker of a policy or a critic, which tells turns from padding in each mini-batch.

verl divides the loss of every mini-batch by one number of rows, and takes an optimizer step for each, also where all
rows are padding. For each micro-batch it takes all rows apart again, which with 5,000 rows is a tenth of a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.workers.engine_workers import TrainingWorker

from .. import extensions
from ..processes.run_log import say_now

#: How many mini-batches verl's worker cuts a batch into, where it is not told of how many rows each is.
MINI_BATCHES = "num_mini_batch"
#: What of an optimizer's settings is followed at a resume (``checks.resumption``); a rate besides.
_FOLLOWED = ("weight_decay", "betas", "eps")


class MiniBatchWorker(TrainingWorker):
    """The loss of a mini-batch is the mean over its turns; one in which no token is trained takes no optimizer step. A
    resumed run goes on with the optimizer's settings that its start asks for."""

    _done: int = 0
    _all: int | None = None

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss_fn(self, loss_fn: Any) -> None:
        policys = self.config.model_type != "value_model"  # a critic has this class, too
        for kind in extensions.objectives().values() if policys else ():
            loss_fn = kind.wrap_loss(loss_fn)
        super().set_loss_fn(loss_fn)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: Any) -> Any:
        """The batch is cut into a fixed number of mini-batches: verl's trainer says a fixed number of rows, and would
        take more steps the longer the games."""
        self._done, self._all = 0, tu.get(data, MINI_BATCHES)
        if self._all is not None:
            tu.pop(data, "mini_batch_size")
        return super().train_mini_batch(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skip_update(self) -> float:
        """A training step in which nothing is trained; returns the next one's learning rate."""
        return float(self.engine.lr_scheduler_step())

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: Any) -> Any:
        self._done += 1
        say_now("update", f"{self._done} of {self._all or '?'}")  # the ranks go on together
        turns = torch.as_tensor(tu.get(data, "num_turns")) > 0  # a row of padding says that it has none
        counts = torch.tensor([int(turns.sum()), int(data["response_mask"].sum())], device=get_device_name())
        torch.distributed.all_reduce(counts, group=self.engine.get_data_parallel_group())
        turns_on_all, tokens = counts.tolist()
        if tokens:
            tu.assign_non_tensor(data, global_batch_size=turns_on_all)
            with rows_once(data):
                return super().train_batch(data)
        metrics = {}
        if tu.get(data, "update_lr_scheduler", default=False):  # it counts training steps, not the optimizer's
            metrics["lr"] = self.engine.lr_scheduler_step()
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics})

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def infer_batch(self, data: Any) -> Any:
        if self.config.model_type == "value_model":
            tu.pop(data, "no_lora_adapter", default=None)  # of the reference's turn; a critic has its own adapter
        with rows_once(data):
            return super().infer_batch(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        with as_asked(self.engine.optimizer, self.engine.lr_scheduler):
            super().load_checkpoint(local_path, hdfs_path, del_local_after_load)


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
def rows_once(data: Any) -> Iterator[None]:
    """Within this context ``unbind``, by which verl asks a nested tensor for its rows, gives the same ones each time.
    A tensor that kept them would stay for ever: rows keep their tensor in torch's C++."""
    nested = [field for field in data.values() if isinstance(field, torch.Tensor) and field.is_nested]
    for field in nested:
        rows = field.unbind()
        vars(field)["unbind"] = lambda dim=0, rows=rows: rows
    try:
        yield
    finally:
        for field in nested:
            vars(field).pop("unbind", None)
