"""The model that a checkpoint's config describes, empty or with its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from .errors import ExportError
from .shards import Weights


def empty_model(huggingface: Path) -> Any:
    """The model without its weights."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        # "eager": the training's attention may need a package that is not installed here
        config = AutoConfig.from_pretrained(huggingface, trust_remote_code=False, attn_implementation="eager")
        with init_empty_weights():
            return AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except ValueError as error:
        raise ExportError(f"{huggingface / 'config.json'}: {error}") from error


def whole_model(huggingface: Path, weights: Weights) -> Any:
    """The model with its weights, all of them and no others.

    Raises:
        ExportError: they do not fit.
    """
    model = empty_model(huggingface)
    model.tie_weights()
    names: dict[int, str] = {}
    tied = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if (first := names.setdefault(id(parameter), name)) != name:
            tied[name] = first
    own: Weights = {}
    for name, weight in weights.items():
        first = tied.get(name, name)
        other = own.setdefault(first, weight)
        if other is not weight and not torch.equal(other, weight):
            raise ExportError(f"{first} and {name} are one in the model and differ in the checkpoint")
    try:
        keys = model.load_state_dict(own, strict=False, assign=True)
    except RuntimeError as error:  # shapes
        raise ExportError(f"the weights do not fit {huggingface / 'config.json'}: {error}") from error
    missing = [name for name in keys.missing_keys if name not in tied]
    if missing or keys.unexpected_keys:
        wrong = [f"{name} is missing" for name in missing] + [f"{name} is unknown" for name in keys.unexpected_keys]
        raise ExportError(f"the weights do not fit {huggingface / 'config.json'}: {', '.join(wrong[:5])}")
    model.tie_weights()
    return model.eval()
