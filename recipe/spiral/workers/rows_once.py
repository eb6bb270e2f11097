"""verl's workers, which take a batch's rows apart once.

verl selects the rows of each micro-batch from nested tensors, and for each selection torch takes the whole tensor apart
again: of 20,000 rows in 60 micro-batches that takes longer than a small model's forward pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from verl.single_controller.base.decorator import make_nd_compute_dataproto_dispatch_fn, register
from verl.workers.engine_workers import TrainingWorker


class RowsOnceWorker(TrainingWorker):
    """Computes what verl's does."""

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: Any) -> Any:
        return super().train_mini_batch(with_rows(data))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: Any) -> Any:
        return super().train_batch(with_rows(data))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def infer_batch(self, data: Any) -> Any:
        return super().infer_batch(with_rows(data))


def with_rows(data: Any) -> Any:
    """The batch, whose nested tensors know their rows: ``unbind``, by which verl asks for them, gives the same rows
    each time."""
    for field in data.values():
        if isinstance(field, torch.Tensor) and field.is_nested:
            rows = _rows(field)
            vars(field)["unbind"] = lambda dim=0, rows=rows: rows
    return data


def _rows(field: Any) -> Sequence[torch.Tensor]:
    """What ``unbind`` gives. It checks each row in Python; to cut sequences that lie one after the other takes a third
    of the time."""
    lengths = field.offsets().diff().tolist()
    if field.dim() == 2 and field.lengths() is None and sum(lengths) == len(field.values()):
        return cast("Sequence[torch.Tensor]", field.values().split(lengths))
    return cast("Sequence[torch.Tensor]", field.unbind())
