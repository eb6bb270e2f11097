"""What the new folder holds: a whole model or an adapter, the tokenizer, and a model card."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from .card import CARD, card
from .dtypes import DTYPES, check_finite, dtype_name
from .lora import Adapter
from .shards import Weights
from .source import Source
from .verification import continuation, verify_adapter, verify_model

#: Tokenizer, chat template, generation config; no weights, and no code.
_COPIED = (".json", ".jinja", ".txt", ".model")
_NOT_COPIED = ("/config.json", ".index.json")


def copy_texts(huggingface: Path, new: Path) -> None:
    """Tokenizer, chat template and generation config, to the byte; the config is the model's to write."""
    for file in sorted(huggingface.rglob("*")):
        name = file.relative_to(huggingface)
        if file.is_file() and file.suffix in _COPIED and not str(file).endswith(_NOT_COPIED):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, new / name)


def write_model(new: Path, source: Source, model: Any, dtype: str | None, verify: bool) -> str:
    """Write a whole model into a folder that holds its texts; returns what it is, in a few words."""
    if dtype is not None:
        model.to(DTYPES[dtype])
    check_finite(dict(model.named_parameters()), dtype)
    generation = new / "generation_config.json"
    original = generation.read_bytes() if generation.is_file() else None
    model.save_pretrained(new, max_shard_size="5GB")
    if original is not None:
        generation.write_bytes(original)
    what = f"{model.num_parameters():,} parameters, {dtype_name(model.dtype)}"
    (new / CARD).write_text(card(source, what, is_adapter=False), encoding="utf-8")
    if verify:
        print(continuation(verify_model(new, model), new, source))
    return what


def write_adapter(
    new: Path, source: Source, weights: Weights, adapter: Adapter, dtype: str | None, verify: bool
) -> str:
    """Write an adapter into a folder that holds the tokenizer; returns what it is, in a few words."""
    adapter.convert(dtype)
    adapter.write(new)
    what = f"LoRA of rank {adapter.config.r}, {adapter.size:,} parameters, {dtype_name(adapter.dtype)}"
    (new / CARD).write_text(card(source, what, is_adapter=True), encoding="utf-8")
    if verify:
        model = verify_adapter(new, adapter, source, weights)
        print("no continuation: no base model here" if model is None else continuation(model, new, source))
    return what
