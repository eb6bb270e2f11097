"""The names of what computes attention, as ``attn_implementation`` has them."""

from __future__ import annotations

import importlib.util

#: What computes attention: flash-attn; PyTorch, row by row (``workers.packed_attention``); and PyTorch as transformers
#: asks for it, which computes it for all pairs of a micro-batch's tokens where rows are packed.
FLASH, PACKED, TORCHS = "flash_attention_2", "spiral_packed", "sdpa"


def detect_attention() -> str:
    """flash-attn's attention where it is installed, and PyTorch's otherwise."""
    return FLASH if importlib.util.find_spec("flash_attn") is not None else PACKED
