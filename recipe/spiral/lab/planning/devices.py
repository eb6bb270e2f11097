"""How much memory this machine has: on its GPUs, as their driver says, without starting CUDA; and on the host."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil

_LIMIT = Path("/sys/fs/cgroup/memory.max")


def gpu_memory() -> int | None:
    """Bytes of the smallest GPU that CUDA may use here; None: there is none, or no driver."""
    command = ["nvidia-smi", "--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [[cell.strip() for cell in line.split(",")] for line in lines if line.count(",") == 2]
    names = [name.strip() for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    sizes = [
        int(mib) * 2**20
        for index, uuid, mib in rows
        if mib.isdecimal() and (not names or any(name == index or uuid.startswith(name) for name in names))
    ]
    return min(sizes, default=None)


def host_memory() -> int:
    """Bytes that the processes of this machine, or of this container, may have together."""
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else ""
    return min(psutil.virtual_memory().total, int(limit) if limit.isdecimal() else psutil.virtual_memory().total)
