"""TransferQueue's own storage, whose client sends the tensors of many rows as a few bytes each instead of a frame each.

``SimpleStorage`` makes a frame of ZeroMQ's of each row of each field, and sending these takes longer than the trainer's
own work on the rows. Here a short tensor is its type, its shape and its numbers in one piece of bytes, and all pieces
travel in one frame. The processes that store rows never look into a piece. Every process that opens the queue must have
imported this module: it takes the place of TransferQueue's client of ``SimpleStorage``.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from tensordict import NonTensorData, NonTensorStack
from tensordict.base import NO_DEFAULT
from transfer_queue.storage.managers.base import StorageManagerFactory
from transfer_queue.storage.managers.simple_storage_manager import AsyncSimpleStorageManager

#: Bytes of a tensor from which on it travels as TransferQueue has it, which does not copy.
LARGE = 16384
#: What a piece begins with, as no other bytes in a row do.
_MARK = b"\xa7row"
_TYPES = (
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
)
_CODES = {dtype: code for code, dtype in enumerate(_TYPES)}


def _pack(row: Any) -> Any:
    """A row of a field; a tensor that is short as a piece of bytes."""
    plain = isinstance(row, torch.Tensor) and row.dtype in _CODES and not row.is_nested and row.layout == torch.strided
    return _head(row.dtype, row.shape) + _numbers(row) if plain and row.nbytes < LARGE else row


def _pack_jagged(rows: torch.Tensor, positions: Sequence[int]) -> list[Any]:
    """Rows of a nested tensor of tokens as pieces, without a tensor for each. [num_rows, ragged]"""
    numbers, size = _numbers(rows.values()), rows.dtype.itemsize
    bounds = list(pairwise(rows.offsets().tolist()))
    heads = {length: _head(rows.dtype, (length,)) for length in {end - begin for begin, end in bounds}}
    return [heads[end - begin] + numbers[size * begin : size * end] for begin, end in (bounds[i] for i in positions)]


def _head(dtype: torch.dtype, shape: Sequence[int]) -> bytes:
    return _MARK + struct.pack(f"<BB{len(shape)}I", _CODES[dtype], len(shape), *shape)


def _numbers(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return bytes(flat.view(torch.uint8).numpy().data) if len(flat) else b""


def _unpack(rows: Sequence[Any]) -> torch.Tensor | list[Any]:
    """Rows of a field with their tensors again: as one nested tensor where all are pieces of tokens of one type, whose
    shape is ``[num_rows, ragged]``, or one by one."""
    heads = {row[:6] for row in rows if type(row) is bytes}
    if len(heads) == 1 and all(type(row) is bytes for row in rows):
        head = heads.pop()
        if head.startswith(_MARK) and head[5] == 1:
            return _unpack_jagged(rows, _TYPES[head[4]])
    return [_unpack_one(row) if type(row) is bytes else row for row in rows]


def _unpack_jagged(rows: Sequence[bytes], dtype: torch.dtype) -> torch.Tensor:
    begin = len(_MARK) + 6
    lengths = [(len(row) - begin) // dtype.itemsize for row in rows]
    offsets = torch.tensor([0, *lengths]).cumsum(0)
    values = _tensor(b"".join([row[begin:] for row in rows]), dtype)
    return torch.nested.nested_tensor_from_jagged(values, offsets, min_seqlen=min(lengths), max_seqlen=max(lengths))


def _unpack_one(row: bytes) -> Any:
    if not row.startswith(_MARK):
        return row
    code, dims = row[len(_MARK)], row[len(_MARK) + 1]
    begin = len(_MARK) + 2 + 4 * dims
    return _tensor(row[begin:], _TYPES[code]).view(struct.unpack(f"<{dims}I", row[len(_MARK) + 2 : begin]))


def _tensor(numbers: bytes, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(bytearray(numbers), dtype=dtype) if numbers else torch.empty(0, dtype=dtype)


class PlainRows(NonTensorStack):
    """Rows that are no tensors, which stay as they are where tensors beside them are padded.

    tensordict would make a copy of each row, which takes ten times as long as padding the tensors.
    """

    @classmethod
    def of(cls, values: Sequence[Any]) -> PlainRows:
        """Text that many rows share is one object: making one takes as long as sending it."""
        shared = {value: NonTensorData(value) for value in {value for value in values if type(value) is str}}
        return cls(*[shared[value] if type(value) is str else NonTensorData(value) for value in values])

    def _apply_nest(self, fn: Any, *others: Any, **options: Any) -> Any:
        changes = options.get("batch_size"), options.get("out"), options.get("device", NO_DEFAULT)
        return self if changes == (None, None, NO_DEFAULT) else super()._apply_nest(fn, *others, **options)


@StorageManagerFactory.register("SimpleStorage")
class PackedStorageManager(AsyncSimpleStorageManager):
    """TransferQueue's client of its storage; rows are packed before they leave, and unpacked when they have come."""

    @staticmethod
    def _select_by_positions(field_data: Any, positions: list[int]) -> Any:
        plain = isinstance(field_data, torch.Tensor) and not field_data.is_nested and field_data.dtype in _CODES
        if plain and field_data.nbytes < LARGE * len(field_data):  # its rows are short
            rows = field_data.cpu()
            return [_pack(rows[position]) for position in positions]
        if _is_jagged_tokens(field_data):
            return _pack_jagged(field_data, positions)
        rows = AsyncSimpleStorageManager._select_by_positions(field_data, positions)
        return [_pack(row) for row in rows] if isinstance(rows, list) else rows

    @staticmethod
    def _pack_field_values(values: list[Any]) -> Any:
        rows = _unpack(values)
        if isinstance(rows, torch.Tensor):
            return rows
        if any(isinstance(row, torch.Tensor) for row in rows):
            return AsyncSimpleStorageManager._pack_field_values(rows)
        return PlainRows.of(rows)


def _is_jagged_tokens(field: Any) -> bool:
    """Whether it is a nested tensor of numbers in a row, all of them short."""
    if not isinstance(field, torch.Tensor) or field.layout != torch.jagged or field.dim() != 2:
        return False
    plain = field.dtype in _CODES and field.lengths() is None
    longest = int(field.offsets().diff().max()) if plain else 0
    return plain and longest * field.dtype.itemsize < LARGE
