"""Folders of models: which are whole, which weights fit into which model, and what is read from the hub's cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from recipe.spiral.opponents.model_files import local, missing_files, put, unfit
from recipe.spiral.storage.manifest import MANIFEST, write_manifest
from tests.opponents.folders import adapter, cut, model, tensors

SIZES = {
    "vocab_size": 32,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        (cut("model-00002-of-00002.safetensors"), "model-00002-of-00002.safetensors"),
        (cut("model-00001-of-00002.safetensors", 20), "model-00001-of-00002.safetensors"),
        (lambda place: (place / "model-00002-of-00002.safetensors").unlink(), "model-00002-of-00002.safetensors"),
        (cut("model.safetensors.index.json"), "model.safetensors.index.json"),
        (cut("config.json"), "config.json"),
        (lambda place: (place / "config.json").unlink(), "config.json with *.safetensors, or adapter_config.json"),
    ],
)
def test_what_is_not_whole(tmp_path: Path, broken: Callable[[Path], None], missing: str) -> None:
    folder = model(tmp_path)
    assert missing_files(folder) == []
    broken(folder)
    assert missing in missing_files(folder)


def test_a_git_lfs_pointer_is_no_weights(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n"
    (adapter(tmp_path) / "adapter_model.safetensors").write_text(pointer)
    assert missing_files(tmp_path) == ["adapter_model.safetensors"]


def test_an_index_names_no_files_elsewhere(tmp_path: Path) -> None:
    tensors(tmp_path / "secret.safetensors", 1)
    folder = model(tmp_path / "model")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../secret.safetensors"}}')
    assert missing_files(folder) == ["../secret.safetensors"]


def saved(folder: Path, without: str = "", max_shard_size: str = "1GB", **settings: object) -> Path:
    from safetensors.torch import load_file, save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    LlamaForCausalLM(LlamaConfig(**{**SIZES, **settings})).save_pretrained(folder, max_shard_size=max_shard_size)
    if without:
        weights = load_file(folder / "model.safetensors")
        del weights[without]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.mark.full
def test_weights_fit_into_a_model_that_computes_the_same(tmp_path: Path) -> None:
    """vLLM keeps the old weights where some are missing, and computes as the first model's config says."""
    base, tied = saved(tmp_path / "base"), saved(tmp_path / "tied", tie_word_embeddings=True)
    assert unfit(saved(tmp_path / "same", max_shard_size="5KB", use_cache=False, eos_token_id=7), base) == ""
    assert unfit(tied, saved(tmp_path / "tied-too", tie_word_embeddings=True)) == ""
    assert "model.norm.weight" in unfit(saved(tmp_path / "less", without="model.norm.weight"), base)
    assert "rms_norm_eps" in unfit(saved(tmp_path / "eps", rms_norm_eps=0.1), base)
    assert "intermediate_size" in unfit(saved(tmp_path / "wide", intermediate_size=32), base)
    assert "lm_head.weight" in unfit(tied, base)


def test_a_model_of_the_hub_is_read_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def download(name: str, **kwargs: object) -> str:
        if name == "some/other":
            raise LocalEntryNotFoundError("no connection")
        if name == "an/other":
            raise RuntimeError("Invalid port: '80:80'")  # httpx's, of a proxy
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert local("some/model") == tmp_path / "snapshot"
    assert local(str(tmp_path)) == tmp_path and local("~/x") == Path("~/x").expanduser()
    for name in ("some/other", "an/other"):
        with pytest.raises(ValueError, match=name):
            local(name)


def test_what_plays_of_a_model_gets_into_a_pool_by_links(tmp_path: Path) -> None:
    source, target = model(tmp_path / "source"), tmp_path / "target"
    for more in ("optimizer.pt", "code.py", "old.safetensors", "chat_template.jinja"):
        (source / more).touch()
    write_manifest(source)
    target.mkdir()
    put(source, target)
    kept = {file.name for file in source.iterdir()} - {"optimizer.pt", "code.py", "old.safetensors", MANIFEST}
    assert {file.name for file in target.iterdir()} == kept
    assert (target / "config.json").samefile(source / "config.json")
    weights = source / "model-00002-of-00002.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    for wrong in (source, tmp_path):
        with pytest.raises(ValueError, match=r"damaged|not whole"):
            put(wrong, target)
