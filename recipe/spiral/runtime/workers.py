"""The workers of policy and critic, which read packed rows and take a batch's rows apart once.

verl selects the rows of each micro-batch from nested tensors, and for each selection torch takes the whole tensor apart
again: of 20,000 rows in 60 micro-batches that takes longer than a small model's forward pass. What is no tensor,
tensordict selects and copies row by row; the engines read none of it but images.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from tensordict import NonTensorStack
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.workers.engine_workers import TrainingWorker

from ..workers.policy_worker import PolicyWorker, TrainedWorker
from . import packed_storage  # noqa: F401  (registers it)

#: Fields that are no tensors, and are read: by verl's engines, and by ours.
_IMAGES, _TURNS = "multi_modal_inputs", "num_turns"


class RowsOnceWorker(TrainingWorker):
    """Computes what verl's does."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: Any) -> Any:
        with with_rows(data) as known:
            return super().train_mini_batch(known)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: Any) -> Any:
        with with_rows(data) as known:
            return super().train_batch(known)

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def infer_batch(self, data: Any) -> Any:
        with with_rows(data) as known:
            return super().infer_batch(known)


@contextmanager
def with_rows(data: Any) -> Iterator[Any]:
    """The batch without fields that nobody reads, whose nested tensors know their rows: ``unbind``, by which verl asks
    for them, gives the same rows each time. Within this context only: rows keep their tensor in torch's C++, so that
    a tensor that keeps them would stay for ever."""
    plain = {name for name, field in data.items() if isinstance(field, NonTensorStack)} - {_IMAGES}
    if plain:
        turns = {_TURNS: torch.as_tensor(tu.get(data, _TURNS))} if _TURNS in plain else {}
        data = data.exclude(*plain).update(turns)
    nested = [field for field in data.values() if isinstance(field, torch.Tensor) and field.is_nested]
    for field in nested:
        rows = _rows(field)
        vars(field)["unbind"] = lambda dim=0, rows=rows: rows
    try:
        yield data
    finally:
        for field in nested:
            vars(field).pop("unbind", None)


def _rows(field: Any) -> Sequence[torch.Tensor]:
    """What ``unbind`` gives. It checks each row in Python; to cut sequences that lie one after the other takes a third
    of the time."""
    lengths = field.offsets().diff().tolist()
    if field.dim() == 2 and field.lengths() is None and sum(lengths) == len(field.values()):
        return cast("Sequence[torch.Tensor]", field.values().split(lengths))
    return cast("Sequence[torch.Tensor]", field.unbind())


class FastTrainedWorker(TrainedWorker, RowsOnceWorker):
    """Of the policy and of a critic."""


class FastPolicyWorker(PolicyWorker):
    """The policy's, with its reference."""

    actor_worker_cls, ref_worker_cls = FastTrainedWorker, RowsOnceWorker
