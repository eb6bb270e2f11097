"""Rows that are packed come back as TransferQueue's own storage gives them, whatever their fields are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import NonTensorStack, TensorDict
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager
from transfer_queue.utils.serial_utils import decode, encode

from recipe.spiral.rollouts.packed_storage import LARGE, PackedStorageManager

TYPES = [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32, torch.float64, torch.bfloat16]


def travels(manager: type[AsyncSimpleStorageManager], field: Any, put: list[int], got: list[int]) -> Any:
    """A field after its way through the storage: the rows ``put`` are put, and of these the rows ``got`` are read."""
    stored = decode(encode({"rows": manager._select_by_positions(field, put)}))["rows"]
    assert len(stored) == len(put)
    each = list(stored)
    kept = [each[row] for row in got]
    read = decode(encode({"rows": kept}))["rows"]
    return manager._pack_field_values([read[row] for row in range(len(got))])


def assert_same(one: Any, other: Any) -> None:
    if not isinstance(one, torch.Tensor):
        assert [str(row) for row in one] == [str(row) for row in other]
        return
    assert one.dtype == other.dtype and one.layout == other.layout and one.is_nested == other.is_nested
    rows, others = (list(field.unbind()) for field in (one, other))
    assert len(rows) == len(others)
    for row, its in zip(rows, others, strict=True):
        assert row.shape == its.shape and torch.equal(row.to(torch.float64), its.to(torch.float64))


def numbers(shape: tuple[int, ...], dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randint(0, 200, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


@given(data=st.data())
def test_a_field_comes_back_as_it_would_from_transfer_queues_own(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(TYPES))
    lengths = data.draw(st.lists(st.sampled_from([0, 1, 2, 5, 90, LARGE // 8, 3000]), min_size=1, max_size=6))
    kind = data.draw(st.sampled_from(["jagged", "dense", "scalars", "list", "grids"]))
    field: Any
    if kind == "jagged":
        rows = [numbers((length,), dtype, seed) for seed, length in enumerate(lengths)]
        field = torch.nested.as_nested_tensor(rows, layout=torch.jagged)
    elif kind == "dense":
        field = numbers((len(lengths), lengths[0]), dtype, 0)
    elif kind == "scalars":
        field = numbers((len(lengths),), dtype, 0)
    elif kind == "list":
        field = [numbers((length,), dtype, seed) for seed, length in enumerate(lengths)]
    else:
        field = torch.nested.as_nested_tensor(
            [numbers((length, 4), dtype, seed) for seed, length in enumerate(lengths)], layout=torch.jagged
        )
    rows_put = data.draw(st.permutations(range(len(lengths))))
    got = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6))
    assert_same(
        travels(PackedStorageManager, field, rows_put, got), travels(AsyncSimpleStorageManager, field, rows_put, got)
    )


@pytest.mark.parametrize(
    "rows",
    [
        [{"key": {"step": 1}, "player": 0}, {"key": {"step": 2}, "player": 1}],
        [{"few": (1, 2), "none": None, 3: 1.5}, {}],
        [{"numbers": torch.arange(3)}, {"large": 2**70}],
        ["text", "more"],
        [1, None],
        [b"\xa7 of somebody's own", b""],
    ],
)
def test_what_is_no_tensor_comes_back_as_well(rows: list[Any]) -> None:
    field = TensorDict({"field": NonTensorStack(*rows)}, batch_size=len(rows))["field"]  # as TransferQueue takes it
    order = list(range(len(rows)))
    assert_same(
        travels(PackedStorageManager, field, order, order), travels(AsyncSimpleStorageManager, field, order, order)
    )
