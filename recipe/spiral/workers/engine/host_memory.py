"""How much of a host's memory is free, as far as this process may use it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil


class HostMemory(NamedTuple):
    """What a slot's server knows of its host: its name in the cluster, free bytes, and bytes of the slot's weights."""

    node: str
    free: int
    weights: int


def free_memory(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes that processes here can still take: what the system has, or what the container's limit leaves of it."""
    free = int(psutil.virtual_memory().available)
    with suppress(OSError, ValueError):  # no container, or "max": no limit
        limit = int((cgroup / "memory.max").read_text())
        free = min(free, limit - int((cgroup / "memory.current").read_text()))
    return max(free, 0)


def weights_size(folder: Path) -> int:
    """Bytes of a model's files of weights."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))
