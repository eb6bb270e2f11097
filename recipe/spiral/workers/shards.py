"""The files of a checkpoint that hold a rank's part of each tensor.

Nothing but tensors is read from them, and they are kept exactly as they were saved. A DTensor is saved with the mesh of
its ranks, which is made of private classes that differ between torch 2.11 and 2.13. What this torch does not know of a
mesh is read as a placeholder: the rank is in the file's name, and a process has a mesh of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

# This import allows torch.load(weights_only=True) to read DTensors.
from torch.distributed.tensor import DTensor

_OF_A_MESH = "torch.distributed."


class Placeholder:
    """Stands for an object of a class that this torch does not have; nothing is known of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass


def read_shard(file: Path) -> Any:
    """What is in a rank's file, on the host: tensors, in dictionaries and lists. Nothing else is read: a checkpoint may
    come from anyone, and unpickling could run any code.

    Raises:
        pickle.UnpicklingError: the file holds more than tensors.
        RuntimeError, EOFError, OSError, ValueError: it is damaged, or was not written by torch.save.
    """
    unknown = torch.serialization.get_unsafe_globals_in_checkpoint(file)
    placeholders: list[Any] = [(Placeholder, name) for name in unknown if name.startswith(_OF_A_MESH)]
    with torch.serialization.safe_globals(placeholders):
        return torch.load(file, map_location="cpu", weights_only=True, mmap=True)


def on_mesh(saved: Any, mesh: Any) -> Any:
    """The same, with each DTensor on this mesh: this rank's part of it, as it was saved."""
    if isinstance(saved, DTensor):
        return DTensor.from_local(
            saved.to_local(), mesh, saved.placements, run_check=False, shape=saved.shape, stride=saved.stride()
        )
    if isinstance(saved, dict):
        return {name: on_mesh(value, mesh) for name, value in saved.items()}
    if isinstance(saved, list | tuple):
        return type(saved)(on_mesh(value, mesh) for value in saved)
    return saved
