"""A snapshot is a folder that Hugging Face's and PEFT's loaders read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from recipe.spiral.opponents.model_files import unfit
from recipe.spiral.workers import policy_worker
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
