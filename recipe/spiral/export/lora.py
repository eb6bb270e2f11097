"""LoRA: the adapter among a checkpoint's weights, for PEFT's files or merged into its model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..storage.disk import read_json
from .source import ExportError, Source, Weights

#: PEFT's prefix for the weights' names of the model that it wraps.
_WRAPPED = "base_model.model."
#: A LoRA weight's name: the module, the matrix, and the adapter's name, which PEFT's files leave out.
_LORA = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?:embedding_)?(?P<matrix>[AB])\.default(?:\.weight)?")


@dataclass
class Adapter:
    """LoRA weights with the names of PEFT's files, and PEFT's config."""

    weights: Weights
    config: Any


def adapter_of(weights: Weights, source: Source, modules: list[str]) -> Adapter | None:
    """The adapter among a checkpoint's weights; None if there is none. ``modules``: of the whole model. Raises
    ExportError: its kind is not supported, or its alpha is not known."""
    lora = {name: weight for name, weight in weights.items() if "lora_" in name}
    if not lora:
        return None
    from peft import LoraConfig

    found = {name: _LORA.fullmatch(name) for name in lora}
    if strange := [name for name, match in found.items() if match is None]:
        raise ExportError(f"{strange[0]}: no weight of a plain LoRA, which is all that is supported")
    matches = {name: match for name, match in found.items() if match is not None}
    adapted = {match["module"] for match in matches.values()}
    last = {name.rsplit(".", 1)[-1] for name in adapted}
    by_last_name = {name for name in modules if name.rsplit(".", 1)[-1] in last} == adapted
    config = LoraConfig(
        r=next(lora[name].shape[0] for name, match in matches.items() if match["matrix"] == "A"),
        lora_alpha=_alpha(source),
        target_modules=sorted(last if by_last_name else adapted),
        bias="none",
        task_type="CAUSAL_LM",
        inference_mode=True,
        base_model_name_or_path=source.hub_id(),
    )
    return Adapter({name.replace(".default", ""): weight for name, weight in lora.items()}, config)


def without_adapter(weights: Weights) -> Weights:
    """The weights of the model that an adapter belongs to; {} where the checkpoint holds only the adapter."""
    return {
        name.removeprefix(_WRAPPED).replace(".base_layer.", "."): weight
        for name, weight in weights.items()
        if "lora_" not in name
    }


def merged(model: Any, adapter: Adapter) -> Any:
    """The model with the adapter added to its weights."""
    import peft

    with_adapter = peft.get_peft_model(model, adapter.config, autocast_adapter_dtype=False)
    if wrong := adapter_weights(with_adapter).keys() ^ adapter.weights.keys():
        raise ExportError(f"the LoRA weights do not fit the model: {', '.join(sorted(wrong)[:5])}")
    peft.set_peft_model_state_dict(with_adapter, adapter.weights)
    return with_adapter.merge_and_unload(safe_merge=True)


def adapter_weights(model: Any) -> Weights:
    """A PEFT model's adapter, with the names of PEFT's files."""
    from peft import get_peft_model_state_dict

    # By default, PEFT asks the hub whether the base model's embeddings were resized.
    state: Weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    return state


def _alpha(source: Source) -> int:
    try:
        alpha = read_json(source.folder / "actor" / "lora_train_meta.json")["lora_alpha"]
    except (OSError, ValueError, KeyError):
        alpha = source.setting("actor_rollout_ref.model.lora_alpha")
    if not isinstance(alpha, int | float):
        raise ExportError("LoRA's alpha is not known: neither actor/lora_train_meta.json nor the run's config names it")
    return int(alpha)
