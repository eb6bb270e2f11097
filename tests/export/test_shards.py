"""Of a shard only tensors are read. Shards of another torch: tests/workers/test_travelling.py."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.tensor import Replicate, Shard

from recipe.spiral.export.source import ExportError
from recipe.spiral.export.weights import join
from recipe.spiral.workers.shards import read_shard
from tests.export.test_export import spread


class Planted:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("run",)


def test_what_is_no_part_of_a_mesh_is_refused(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(2), "more": Planted()}, tmp_path / "shard.pt")
    with pytest.raises(pickle.UnpicklingError):
        read_shard(tmp_path / "shard.pt")


def test_replicas_on_a_mesh_that_this_torch_cannot_read_are_refused() -> None:
    whole = torch.arange(10).reshape(5, 2)
    parts = [whole[:3], whole[3:], whole[:3], whole[3:]]
    shards = spread(whole, [[0, 1], [2, 3]], [Replicate(), Shard(0)], parts)
    del shards[0].device_mesh.__dict__["_rank_map"]
    with pytest.raises(ExportError, match=f"another torch than {torch.__version__.split('+')[0]}"):
        join("weight", shards)
