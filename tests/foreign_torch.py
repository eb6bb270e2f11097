"""A torch whose meshes are made of other classes, as those of 2.11 and 2.13 are for each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributed import _mesh_layout


@contextmanager
def another_torch() -> Iterator[type]:
    """Within it torch has one more class that a mesh may be made of."""
    other = type("_OfAnotherTorch", (), {"__module__": _mesh_layout.__name__})
    setattr(_mesh_layout, other.__name__, other)
    try:
        yield other
    finally:
        delattr(_mesh_layout, other.__name__)
