"""How much memory this machine has: on its GPUs, as their driver says, without starting CUDA; and on the host."""

from __future__ import annotations

import subprocess
from pathlib import Path

import psutil

#: Where nothing is known: a card of 80 GB as its driver counts it.
USUAL = 79.6 * 2**30
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def gpu_memory() -> int | None:
    """Bytes of the smallest GPU here; None: there is none, or no driver."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout
        sizes = [int(line) for line in printed.split()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return min(sizes) * 2**20 if sizes else None


def host_memory() -> int:
    """Bytes that the processes of this machine, or of this container, may have together."""
    limits = [Path(name).read_text().strip() for name in _LIMITS if Path(name).is_file()]
    return min([psutil.virtual_memory().total, *(int(limit) for limit in limits if limit.isdecimal())])
