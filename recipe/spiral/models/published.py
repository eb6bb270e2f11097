"""The forms of models that presets name, written down by hand, so that a run of theirs can be estimated before anything
is downloaded. They are as the models' own configs; where the model is here, its config counts."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any


def _qwen3(hidden: int, intermediate: int, layers: int, heads: int, tied: bool) -> dict[str, Any]:
    return {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": tied,
    }


_QWEN2_7B = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}
_QWEN25_3B = {
    "model_type": "qwen2",
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
_LLAMA_8B = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}

#: The name on the Hugging Face hub -> the fields of its config that decide its size.
PUBLISHED: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "Qwen/Qwen3-0.6B-Base": _qwen3(1024, 3072, 28, 16, tied=True),
        "Qwen/Qwen3-1.7B-Base": _qwen3(2048, 6144, 28, 16, tied=True),
        "Qwen/Qwen3-4B-Base": _qwen3(2560, 9728, 36, 32, tied=True),
        "Qwen/Qwen3-8B-Base": _qwen3(4096, 12288, 36, 32, tied=False),
        "Qwen/Qwen2.5-3B-Instruct": _QWEN25_3B,
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B": _QWEN2_7B,
        "meta-llama/Llama-3.1-8B-Instruct": _LLAMA_8B,
    }
)
#: Those whose terms must be accepted on the hub, by an account that is logged in.
GATED = frozenset({"meta-llama/Llama-3.1-8B-Instruct"})
