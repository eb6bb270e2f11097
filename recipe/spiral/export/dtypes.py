"""The types that weights can be given, and whether their values fit."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from .errors import ExportError

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}


def check_finite(weights: Mapping[str, torch.Tensor], dtype: str | None) -> None:
    """Raises ExportError if a weight is infinite or not a number."""
    for name, weight in weights.items():
        if not torch.isfinite(weight).all():
            mend = "try --dtype bfloat16" if dtype == "float16" else "the training diverged; take an earlier step"
            raise ExportError(f"{name}: has values that are no finite {dtype or 'numbers'}; {mend}")


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
