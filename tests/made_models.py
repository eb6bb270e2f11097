"""Folders with the form of a published model and a tokenizer that stands in for its own; no weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from recipe.spiral import main_spiral

SHIPPED = Path(main_spiral.__file__).parent / "shipped" / "tiny"
#: With every role that a template uses, and all of what an assistant said.
CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


_FIELDS = (
    *("model_type", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size", "max_position_embeddings", "tie_word_embeddings"),
)


def _form(*row: Any, **more: Any) -> dict[str, Any]:
    return {**dict(zip(_FIELDS, row, strict=True)), "architectures": [f"{row[0].capitalize()}ForCausalLM"], **more}


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> dict[str, Any]:
    return _form("qwen3", hidden, intermediate, layers, heads, 8, 151936, 32768, tied, head_dim=128)


#: The name on the Hugging Face hub -> the fields of its config that decide its size.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen3-0.6B-Base": _qwen3(1024, 3072, 28, 16, tied=True),
    "Qwen/Qwen3-1.7B-Base": _qwen3(2048, 6144, 28, 16, tied=True),
    "Qwen/Qwen3-4B-Base": _qwen3(2560, 9728, 36, 32, tied=True),
    "Qwen/Qwen3-8B-Base": _qwen3(4096, 12288, 36, 32, tied=False),
    "Qwen/Qwen2.5-3B-Instruct": _form("qwen2", 2048, 11008, 36, 16, 2, 151936, 32768, True),
    "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _form("qwen2", 3584, 18944, 28, 28, 4, 152064, 131072, False),
    "meta-llama/Llama-3.1-8B-Instruct": _form("llama", 4096, 14336, 32, 32, 8, 128256, 131072, False),
}


def made_model(folder: Path, name: str) -> Path:
    """A folder with the config of the model of this name on the hub.

    Its tokenizer is the tiny model's, of 383 tokens: prompts are longer in it than in the model's own.
    """
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(dict(PUBLISHED[name])))
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(SHIPPED / file, folder / file)
    (folder / "chat_template.jinja").write_text(CHAT)
    without_weights(folder / "model.safetensors")
    return folder


def without_weights(file: Path) -> None:
    """A whole file of safetensors that has none."""
    file.write_bytes((2).to_bytes(8, "little") + b"{}")
