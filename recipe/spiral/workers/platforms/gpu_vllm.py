"""vLLM's worker on a GPU, whose ranks meet on one address instead of all of the machine's."""

from __future__ import annotations

from typing import Any

from vllm.v1.worker import gpu_worker

from ..rendezvous import on_one_address


class Worker(gpu_worker.Worker):
    def __init__(self, *args: Any, distributed_init_method: str, **kwargs: Any) -> None:
        super().__init__(*args, distributed_init_method=on_one_address(distributed_init_method), **kwargs)
