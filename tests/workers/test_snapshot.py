"""Weights on their way out of a worker: a snapshot is a folder that Hugging Face's and PEFT's loaders read; an engine
gets them through a file; and where the ranks meet."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from torch.distributed.rendezvous import rendezvous
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from verl.checkpoint_engine import CheckpointEngineRegistry

from recipe.spiral.opponents.model_files import unfit
from recipe.spiral.workers import policy_worker
from recipe.spiral.workers.engine import receiving
from recipe.spiral.workers.engine.receiving import FileCheckpointEngine
from recipe.spiral.workers.policy_worker import PolicyWorker


def language_model(tied: bool = False, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        tie_word_embeddings=tied,
    )
    return LlamaForCausalLM(config).eval()


class Engine:
    """verl's engine as far as a snapshot needs it."""

    is_param_offload_enabled = True

    def __init__(self, module: Any) -> None:
        self.module = module
        rank = module.peft_config["default"].r if isinstance(module, PeftModel) else 0
        self.model_config = SimpleNamespace(hf_config=module.config, lora_rank=rank, lora={})
        self.device_mesh = SimpleNamespace(size=lambda dim: 1)
        self.gathered: list[str] = []
        self.moved: list[Any] = []

    def get_per_tensor_param(self, layered_summon: bool, base_sync_done: bool) -> tuple[Any, Any]:
        assert base_sync_done
        if not isinstance(self.module, PeftModel):
            return self._gathering(self.module.state_dict()), None
        return self._gathering(get_peft_model_state_dict(self.module)), self.module.peft_config["default"].to_dict()

    def _gathering(self, weights: Any) -> Iterator[tuple[str, torch.Tensor]]:
        for name, weight in weights.items():
            self.gathered.append(name)
            yield name, weight

    def to(self, device: str, **what: bool) -> None:
        self.moved.append((device, what))


def worker(module: Any, rank: int = 0, dtype: str = "float32") -> Any:
    made = object.__new__(PolicyWorker)
    made._rank, made._world_size = rank, 1
    made.actor = SimpleNamespace(engine=Engine(module))
    made.config = OmegaConf.create({"rollout": {"dtype": dtype, "layered_summon": False}})
    return made


IDS = torch.tensor([[1, 2, 3]])


@pytest.mark.parametrize("file_size", ["2GB", "2KB"])
@pytest.mark.parametrize("tied", [True, False])
def test_it_is_the_model_in_one_file_or_in_several(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tied: bool, file_size: str
) -> None:
    monkeypatch.setattr(policy_worker, "FILE_SIZE", file_size)
    module = language_model(tied)
    made, folder = worker(module), tmp_path / "pool" / "step-10"
    made.save_snapshot(str(folder))
    assert (len(list(folder.glob("*.safetensors"))) > 1) == (file_size == "2KB")
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert torch.equal(loaded(IDS).logits, module(IDS).logits)
    assert [path.name for path in folder.parent.iterdir()] == ["step-10"]
    assert made.actor.engine.moved == [("cpu", {"model": True, "optimizer": False, "grad": False})]
    language_model(tied).save_pretrained(tmp_path / "initial")
    assert not unfit(folder, tmp_path / "initial")


def test_with_lora_it_is_an_adapter_for_peft_in_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_worker, "FILE_SIZE", "1KB")
    settings = LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False, task_type="CAUSAL_LM")
    module = get_peft_model(language_model(seed=0), settings).eval()
    worker(module).save_snapshot(str(tmp_path / "s"))
    assert {path.name for path in (tmp_path / "s").iterdir()} == {"adapter_config.json", "adapter_model.safetensors"}
    loaded = PeftModel.from_pretrained(language_model(seed=0), tmp_path / "s").eval()
    assert torch.equal(loaded(IDS).logits, module(IDS).logits)


# -- weights for an engine through a file, and where the ranks meet ----------------------------------------------------

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
