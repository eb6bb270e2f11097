"""vLLM's worker on a CPU, whose ranks meet on one address instead of all of the machine's.

Importing this applies our patches. An evaluation's engine names it for its own process, too, before vLLM is imported.
"""

from __future__ import annotations

from typing import Any

from . import cpu_patches

cpu_patches.apply()

from vllm.v1.worker import cpu_worker  # noqa: E402

from ..rendezvous import on_one_address  # noqa: E402


class CPUWorker(cpu_worker.CPUWorker):
    def __init__(self, *args: Any, distributed_init_method: str, **kwargs: Any) -> None:
        super().__init__(*args, distributed_init_method=on_one_address(distributed_init_method), **kwargs)
