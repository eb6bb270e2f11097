"""What of a model decides how much memory it takes; the model itself is made without weights."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ModelSize:
    """Numbers of parameters, and widths in elements for each token."""

    parameters: int  # of the whole model; weights that are shared count once
    root: int  # outside the layers, gathered through a step: the output layer, and the embedding where it is the same
    layer: int  # of the largest layer
    layers: int  # how many there are
    hidden: int  # the width between layers
    intermediate: int  # within a layer's feed-forward part (of all active experts)
    query: int  # of all queries of a token
    key_value: int  # of all keys of a token
    normalised: bool  # whether queries and keys are normalised, which keeps copies of them
    vocabulary: int  # the width of the logits
    adapter: int  # LoRA's parameters at rank 1 on all linear layers
    tied: bool  # whether the output layer is the embedding


def measure(path: str, trust_remote_code: bool = False) -> ModelSize:
    """Of the model in a folder, or on the hub.

    Raises:
        ValueError, OSError: its config cannot be read, or is of no model that transformers knows.
    """
    from transformers import AutoConfig

    return of_config(AutoConfig.from_pretrained(path, trust_remote_code=trust_remote_code), trust_remote_code)


def of_config(config: Any, trust_remote_code: bool = False) -> ModelSize:
    """Of a transformers config.

    Raises:
        ValueError: transformers knows no such model, or it does not tell of its layers.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        made = AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
    text = config.get_text_config()
    blocks = _layers(made)
    if not blocks:
        raise ValueError(f"{type(made).__name__} has no layers that transformers names")
    total, inner = _count(made.parameters()), _count(p for block in blocks for p in block.parameters())
    embedding, head = made.get_input_embeddings(), made.get_output_embeddings()
    tied = head is None or head.weight is embedding.weight or bool(getattr(text, "tie_word_embeddings", False))
    shared = 0 if head is None or head.weight is embedding.weight or not tied else head.weight.numel()
    heads = text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    experts = getattr(text, "num_experts_per_tok", None) or 1
    widths = (getattr(text, name, None) for name in ("moe_intermediate_size", "intermediate_size", "ffn_dim"))
    intermediate = next(filter(None, widths), None)
    if intermediate is None:
        raise ValueError(f"{type(made).__name__} does not say how wide its layers are")
    linear = [m for m in made.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    return ModelSize(
        parameters=total - shared,
        root=total - shared - inner - (0 if tied else embedding.weight.numel()),
        layer=max(_count(block.parameters()) for block in blocks),
        layers=len(blocks),
        hidden=text.hidden_size,
        intermediate=intermediate * experts,
        query=heads * width,
        key_value=(getattr(text, "num_key_value_heads", None) or heads) * width,
        normalised=any("q_norm" in name for name, _ in blocks[0].named_parameters()),
        vocabulary=text.vocab_size,
        adapter=sum(m.in_features + m.out_features for m in linear),
        tied=tied,
    )


def _layers(model: Any) -> Sequence[Any]:
    """The modules that FSDP gathers one by one."""
    names = set(getattr(model, "_no_split_modules", None) or ())
    return [module for module in model.modules() if type(module).__name__ in names]


def _count(parameters: Iterable[Any]) -> int:
    return sum(p.numel() for p in {id(p): p for p in parameters}.values())
