"""Weights that do not belong into the model are found before the engine is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

from recipe.spiral.workers.engine.fitting import UnfitWeights, check_fits, weight_shapes

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


def model(folder: Path, max_shard_size: str = "1GB", **settings: object) -> Path:
    LlamaForCausalLM(LlamaConfig(**{**SIZES, **settings})).save_pretrained(folder, max_shard_size=max_shard_size)
    return folder


def change(folder: Path, **weights: torch.Tensor | None) -> Path:
    from safetensors.torch import load_file

    file = folder / "model.safetensors"
    save_file({k: v for k, v in {**load_file(file), **weights}.items() if v is not None}, file, {"format": "pt"})
    return folder


@pytest.mark.parametrize("tied", [True, False])
def test_another_checkpoint_of_the_model_fits(tmp_path: Path, tied: bool) -> None:
    base = model(tmp_path / "base", tie_word_embeddings=tied)
    other = model(tmp_path / "other", "5KB", tie_word_embeddings=tied, use_cache=False, eos_token_id=7)
    assert len(list(other.glob("*.safetensors"))) > 1
    check_fits(other, base)
    assert ("lm_head.weight" in weight_shapes(base)) is not tied


def test_a_tied_output_layer_may_be_written_or_not(tmp_path: Path) -> None:
    base, other = (model(tmp_path / name, tie_word_embeddings=True) for name in ("base", "other"))
    change(
        other, **{"lm_head.weight": torch.zeros(32, 16), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    )
    check_fits(other, base)
    check_fits(base, other)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"model.norm.weight": None}, "model.norm.weight is missing"),
        ({"lm_head.weight": None}, "lm_head.weight is missing"),
        ({"model.norm.weight": torch.ones(8)}, r"model.norm.weight is \(8,\) where \(16,\) is needed"),
        ({"model.more.weight": torch.ones(8)}, "model.more.weight is unknown"),
    ],
)
def test_other_weights_do_not_fit(tmp_path: Path, weights: dict[str, torch.Tensor], message: str) -> None:
    base, other = (model(tmp_path / name, tie_word_embeddings=False) for name in ("base", "other"))
    with pytest.raises(UnfitWeights, match=message):
        check_fits(change(other, **weights), base)


@pytest.mark.parametrize(
    "settings",
    [
        {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8},
        {"rope_theta": 5e5},
        {"tie_word_embeddings": True},
    ],
)
def test_the_same_shapes_computed_with_in_another_way_do_not_fit(tmp_path: Path, settings: dict[str, object]) -> None:
    base = model(tmp_path / "base", tie_word_embeddings=False)
    with pytest.raises(UnfitWeights, match=f"where .* is needed, as in {base}"):
        check_fits(model(tmp_path / "other", **settings), base)


def test_folders_that_are_not_whole(tmp_path: Path) -> None:
    base = model(tmp_path / "base")
    with pytest.raises(UnfitWeights, match=r"holds no config\.json"):
        check_fits(tmp_path / "nowhere", base)
    other = model(tmp_path / "other", "5KB")
    gone = sorted(other.glob("*.safetensors"))[0]
    kept = gone.read_bytes()
    gone.unlink()
    with pytest.raises(UnfitWeights, match=f"missing or cut short: {gone.name};"):
        check_fits(other, base)
    gone.write_bytes(kept[:-10])
    with pytest.raises(UnfitWeights, match=f"missing or cut short: {gone.name};"):
        check_fits(other, base)
    for file in [*other.glob("*.safetensors"), *other.glob("*.index.json")]:
        file.unlink()
    with pytest.raises(UnfitWeights, match=r"missing or cut short: .*; weights must be safetensors"):
        check_fits(other, base)
    assert json.loads((other / "config.json").read_text())["hidden_size"] == 16
