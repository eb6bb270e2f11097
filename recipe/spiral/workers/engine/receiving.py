"""What verl imports in each process that sends or receives the policy's weights through a checkpoint engine
(``separate_async``): our engine's classes, a rendezvous on one address, and a checkpoint engine through a file.

verl's own go over NCCL and its like. The one through a file is for one machine without a GPU.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from verl.checkpoint_engine import CheckpointEngine, CheckpointEngineRegistry

from .. import engine, rendezvous  # noqa: F401  (registers its classes; ranks meet on one address)

#: Seconds that the weights may take to arrive.
LIMIT = 1200.0


@CheckpointEngineRegistry.register("file")
class FileCheckpointEngine(CheckpointEngine):
    """Rank 0 of the trainer writes all weights of a step into one file, which gets its name when it is whole, and
    removes it when all engines have read it. The folder is of this run alone."""

    def __init__(self, bucket_size: int, folder: str, is_master: bool = False) -> None:
        self._is_master = is_master
        self._folder = Path(folder)

    def prepare(self) -> dict[str, Any]:
        """Remove what a kill left: it may be of the same step."""
        if self._is_master:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.finalize()
        return {}

    @classmethod
    def build_topology(cls, *args: Any) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        return {}, {}

    def init_process_group(self, **kwargs: Any) -> None:
        """There is none."""

    def finalize(self) -> None:
        for file in self._folder.glob("step_*") if self._is_master else ():
            file.unlink(missing_ok=True)

    async def send_weights(self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None) -> None:
        """Gather each weight, in which all ranks take part, and write them."""
        gathered = {}
        for name, weight in weights:
            if self._is_master:
                gathered[name] = weight.detach().to("cpu", copy=True).contiguous()
        if self._is_master:
            file = self._file(global_steps)
            unfinished = file.with_suffix(".unfinished")
            await asyncio.to_thread(save_file, gathered, unfinished)
            unfinished.rename(file)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:
        """Each weight, as soon as the file is there; TimeoutError: it does not come."""
        file = self._file(global_steps)
        async with asyncio.timeout(LIMIT):
            while not file.is_file():
                await asyncio.sleep(0.01)
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118  (it is no dictionary)
                yield name, weights.get_tensor(name)

    def _file(self, global_steps: int | None) -> Path:
        return self._folder / f"step_{global_steps}.safetensors"
