"""Weights that reach an engine through a file: whole, of the right step, and nothing is left."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
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
