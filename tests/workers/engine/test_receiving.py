"""Weights that reach an engine through a file, and where the ranks meet."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.rendezvous import rendezvous
from verl.checkpoint_engine import CheckpointEngineRegistry

from recipe.spiral.workers.engine import receiving
from recipe.spiral.workers.engine.receiving import FileCheckpointEngine

WEIGHTS = {"model.embed": torch.arange(6.0).reshape(2, 3), "model.head": torch.ones(3, dtype=torch.bfloat16)}


def engine(folder: Path, is_master: bool = False) -> FileCheckpointEngine:
    made = CheckpointEngineRegistry.new("file", bucket_size=1 << 20, is_master=is_master, folder=str(folder))
    assert isinstance(made, FileCheckpointEngine)
    return made


async def receive(receiver: FileCheckpointEngine, step: int) -> dict[str, torch.Tensor]:
    return {name: weight async for name, weight in receiver.receive_weights(global_steps=step)}


def test_only_a_file_of_this_step_and_of_this_start_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "LIMIT", 0.05)
    asyncio.run(engine(tmp_path, True).send_weights(WEIGHTS.items(), global_steps=2))
    with pytest.raises(TimeoutError):
        asyncio.run(receive(engine(tmp_path), 3))
    engine(tmp_path, True).prepare()  # after a kill
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["tcp://127.0.0.1:{port}", "env://"])
def test_the_ranks_store_listens_on_one_address(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """torch's own listens on all of a machine's."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))

    def meet(rank: int) -> Any:
        return next(rendezvous(f"{method.format(port=port)}?rank={rank}&world_size=2", timeout=timedelta(seconds=60)))

    with ThreadPoolExecutor(2) as ranks:  # the first one waits for the other
        (store, *first), (_, *second) = ranks.map(meet, range(2))
    assert (first, second, store.port) == ([0, 2], [1, 2], port)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port))
