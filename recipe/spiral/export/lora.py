"""LoRA: the adapter among a checkpoint's weights, for PEFT's files or merged into its model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..storage.disk import read_json
from .source import ExportError, Source
from .weights import Weights, empty_model, whole_model

#: PEFT's prefix for the weights' names of the model that it wraps.
_WRAPPED = "base_model.model."
#: A LoRA weight's name: the module, the matrix, and the adapter's name, which PEFT's files leave out.
_LORA = re.compile(r"base_model\.model\.(?P<module>.+)\.lora_(?:embedding_)?(?P<matrix>[AB])\.default(?:\.weight)?")


@dataclass
class Adapter:
    """LoRA weights with the names of PEFT's files, and PEFT's config."""

    weights: Weights
    config: Any

    @classmethod
    def of(cls, weights: Weights, source: Source) -> Adapter | None:
        """The adapter among a checkpoint's weights; None if there is none. Raises ExportError: its kind is not
        supported, or its settings are not known."""
        lora = {name: weight for name, weight in weights.items() if "lora_" in name}
        if not lora:
            return None
        from peft import LoraConfig

        for key in ("lora_adapter_path", "target_parameters"):
            if source.setting(f"actor_rollout_ref.model.{key}"):
                raise ExportError(f"actor_rollout_ref.model.{key} was set for this run: not supported by the export")
        modules, ranks, renamed = set(), set(), {}
        for name, weight in lora.items():
            if (match := _LORA.fullmatch(name)) is None:
                raise ExportError(f"{name}: no weight of a plain LoRA, which is all that is supported")
            modules.add(match["module"])
            if match["matrix"] == "A":
                ranks.add(weight.shape[0])
            renamed[name.replace(".default", "")] = weight
        if len(ranks) != 1:
            raise ExportError(f"the LoRA weights have ranks {sorted(ranks)}: must have one")
        config = LoraConfig(
            r=ranks.pop(),
            lora_alpha=_alpha(source),
            target_modules=_targets(modules, source.huggingface),
            bias="none",
            task_type="CAUSAL_LM",
            inference_mode=True,
            base_model_name_or_path=source.hub_id(),
        )
        return cls(renamed, config)

    def merged(self, source: Source, weights: Weights) -> Any:
        """The model with the adapter added to its weights. Raises ExportError: the checkpoint holds only the adapter,
        or the adapter does not fit the model."""
        import peft

        model = base_model(source, weights)
        if model is None:
            raise ExportError(
                f"--merge: {source.folder} holds the adapter alone, without the model's own weights; leave it out, and "
                "merge the adapter into the base model with peft"
            )
        with_adapter = peft.get_peft_model(model, self.config, autocast_adapter_dtype=False)
        expected = adapter_weights(with_adapter)
        if expected.keys() != self.weights.keys():
            wrong = sorted(expected.keys() ^ self.weights.keys())
            raise ExportError(f"the LoRA weights do not fit the model: {', '.join(wrong[:5])}")
        peft.set_peft_model_state_dict(with_adapter, self.weights)
        return with_adapter.merge_and_unload(safe_merge=True)


def base_model(source: Source, weights: Weights) -> Any | None:
    """The model that an adapter belongs to; None if the checkpoint holds only the adapter."""
    own = {
        name.removeprefix(_WRAPPED).replace(".base_layer.", "."): weight
        for name, weight in weights.items()
        if "lora_" not in name
    }
    return whole_model(source.huggingface, own) if own else None


def adapter_weights(model: Any) -> Weights:
    """A PEFT model's adapter, with the names of PEFT's files."""
    from peft import get_peft_model_state_dict

    # By default, PEFT asks the hub whether the base model's embeddings were resized.
    state: Weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    return state


def _alpha(source: Source) -> int:
    noted = source.folder / "actor" / "lora_train_meta.json"
    try:
        return int(read_json(noted)["lora_alpha"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        alpha = source.setting("actor_rollout_ref.model.lora_alpha")
    if not isinstance(alpha, int | float):
        raise ExportError(f"LoRA's alpha is not known: neither {noted} nor config.yaml of the run names it")
    return int(alpha)


def _targets(modules: set[str], huggingface: Path) -> list[str]:
    """The modules' last names, or their whole names if the last names fit other modules, too."""
    names = [name for name, _ in empty_model(huggingface).named_modules()]
    if unknown := modules - set(names):
        raise ExportError(f"{min(unknown)}: has LoRA weights, and is no module of the model")
    last = {name.rsplit(".", 1)[-1] for name in modules}
    meant = {name for name in names if name.rsplit(".", 1)[-1] in last}
    return sorted(last if meant == modules else modules)
