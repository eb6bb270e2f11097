"""From a checkpoint to a Hugging Face folder: a model, or with LoRA an adapter, and the tokenizer; and whether
transformers and PEFT read from it what the checkpoint holds."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from ..opponents.model_files import is_hub_id
from ..storage.disk import read_json, whole_folder
from ..storage.manifest import MANIFEST, TEXTS, write_manifest
from ..storage.run_files import EXPORTED, setting
from .source import Source, Weights

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
#: Of a model's texts: what is written anew. For the config of an adapter transformers would load another base model.
_NOT_COPIED = ("/config.json", "/adapter_config.json", ".index.json", f"/{MANIFEST}")
#: What of a run's config says how its model is asked, and by which rules it plays. No paths.
_PLAY = (
    *("games", "prompt.template", "prompt.style", "rules"),
    *("data.max_prompt_length", "data.max_response_length", "data.apply_chat_template_kwargs"),
    *(f"actor_rollout_ref.rollout.{key}" for key in ("temperature", "top_p", "top_k")),
)
#: PEFT's prefix for the weights' names of the model that it wraps, and a LoRA weight's name in PEFT's files.
_WRAPPED = "base_model.model."
_LORA = re.compile(r"base_model\.model\.(.+)\.lora_(?:embedding_)?([AB])(?:\.weight)?")


class Different(RuntimeError):
    """What transformers reads from the new folder is not what the checkpoint holds."""


def export(
    checkpoint: Path,
    target: Path,
    dtype: str | None = None,
    merge: bool = False,
    verify: bool = False,
    reference: bool = False,
) -> str:
    """Make the folder ``target``, completely or not at all; returns in a line what was done.

    Args:
        checkpoint: a folder ``global_step_N``, or a run's folder, whose latest checkpoint is taken.
        dtype: one of ``DTYPES``; None: the checkpoint's.
        merge: merge a LoRA adapter into its model.
        verify: load the result and compare every tensor.
        reference: take the checkpoint's reference policy instead of its policy.

    Raises:
        ValueError: the checkpoint is not what was written, or cannot be exported as asked. Nothing was written.
        Different: with ``verify``: the result is not what the checkpoint holds.
        OSError: it cannot be written.
    """
    source, target = Source.find(checkpoint, reference), target.expanduser().resolve()
    if target.is_relative_to(source.folder) or (target.is_dir() and any(target.iterdir())):
        raise ValueError(f"{target}: is not empty, or in the checkpoint; name another folder")
    weights = source.weights()
    if dtype is not None:
        weights = {name: weight.to(DTYPES[dtype]) for name, weight in weights.items()}
    if bad := [name for name, weight in weights.items() if not torch.isfinite(weight).all()]:
        raise ValueError(f"{bad[0]}: has values that are no finite numbers of type {dtype or 'its own'}")
    # the adapter's name is in no file of PEFT's
    lora = {name.replace(".default", ""): weight for name, weight in weights.items() if "lora_" in name}
    base = {
        name.removeprefix(_WRAPPED).replace(".base_layer.", "."): weight
        for name, weight in weights.items()
        if "lora_" not in name
    }
    if merge and not (lora and base):
        raise ValueError(f"--merge: {source.folder} holds {'no LoRA weights' if base else 'the adapter alone'}")
    with whole_folder(target) as new:
        for file in source.huggingface.rglob("*"):
            if file.suffix in TEXTS and not str(file).endswith(_NOT_COPIED):
                (new / file.relative_to(source.huggingface)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, new / file.relative_to(source.huggingface))
        settings = OmegaConf.create()
        for key in _PLAY:
            if (value := setting(source.config, key)) is not None:
                OmegaConf.update(settings, key, value)
        OmegaConf.save(settings, new / EXPORTED)
        if lora and not merge:
            what = _write_adapter(new, source, lora, verify)
        else:
            model = whole_model(source, base)
            what = _write_model(new, _merged(model, source, lora) if lora else model, verify)
        write_manifest(new)
    of = "the reference policy of " * reference
    return f"exported {of}step {source.state['step']}{', verified' * verify}: {what}: {target}"


# -- a whole model -----------------------------------------------------------------------------------------------------


def empty_model(source: Source) -> Any:
    """The model that a checkpoint's config describes, without weights."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    # "eager", because the training's attention may need a package that is not installed here.
    config = AutoConfig.from_pretrained(source.huggingface, attn_implementation="eager")
    with init_empty_weights():
        return AutoModelForCausalLM.from_config(config)


def whole_model(source: Source, weights: Weights) -> Any:
    """The model with exactly these weights. Raises ValueError: one is missing or unknown;
    RuntimeError: one is of another shape."""
    model = empty_model(source)
    unknown = model.load_state_dict(weights, strict=False, assign=True).unexpected_keys
    model.tie_weights()
    missing = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if wrong := [*missing, *unknown]:
        raise ValueError(f"{source.huggingface / 'config.json'}: missing or unknown weights: {', '.join(wrong[:5])}")
    return model.eval()


def _write_model(new: Path, model: Any, verify: bool) -> str:
    """Write a whole model; returns a description in a few words."""
    from transformers import AutoModelForCausalLM

    generation = new / "generation_config.json"
    original = generation.read_bytes() if generation.is_file() else None
    model.save_pretrained(new, max_shard_size="5GB")
    if original is not None:  # transformers writes one by the model's own defaults
        generation.write_bytes(original)
    if verify:
        loaded, report = AutoModelForCausalLM.from_pretrained(new, output_loading_info=True)
        if wrong := [f"{kind}: {names}" for kind, names in report.items() if names]:
            raise Different(f"transformers does not read it as it is: {'; '.join(wrong)}")
        _compare(loaded.state_dict(), model.state_dict())
    return f"{model.num_parameters():,} parameters, {model.dtype}"


# -- LoRA --------------------------------------------------------------------------------------------------------------


def _lora_config(source: Source, lora: Weights) -> Any:
    """PEFT's config of an adapter. Raises ValueError: its kind is not supported."""
    from peft import LoraConfig

    found = {name: _LORA.fullmatch(name) for name in lora}
    if strange := [name for name, match in found.items() if match is None]:
        raise ValueError(f"{strange[0]}: no weight of a plain LoRA, which is all that is supported")
    matches = {name: match for name, match in found.items() if match is not None}
    model = setting(source.config, "actor_rollout_ref.model.path")
    return LoraConfig(
        r=next(lora[name].shape[0] for name, match in matches.items() if match[2] == "A"),
        lora_alpha=int(read_json(source.folder / "actor" / "lora_train_meta.json")["lora_alpha"]),
        target_modules=sorted({match[1] for match in matches.values()}),
        bias="none",
        task_type="CAUSAL_LM",
        inference_mode=True,
        base_model_name_or_path=model if isinstance(model, str) and is_hub_id(model) else None,
    )


def _merged(model: Any, source: Source, lora: Weights) -> Any:
    """The model with the adapter added to its weights."""
    import peft

    with_adapter = peft.get_peft_model(model, _lora_config(source, lora), autocast_adapter_dtype=False)
    if wrong := _adapter_weights(with_adapter).keys() ^ lora.keys():
        raise ValueError(f"the LoRA weights do not fit the model: {', '.join(sorted(wrong)[:5])}")
    peft.set_peft_model_state_dict(with_adapter, lora)
    return with_adapter.merge_and_unload(safe_merge=True)


def _write_adapter(new: Path, source: Source, lora: Weights, verify: bool) -> str:
    """Write an adapter; returns a description in a few words."""
    import peft
    from safetensors.torch import save_file

    config, tensors = _lora_config(source, lora), {name: weight.contiguous() for name, weight in lora.items()}
    config.save_pretrained(new)
    save_file(tensors, new / "adapter_model.safetensors", metadata={"format": "pt"})
    kind = next(iter(tensors.values())).dtype
    if verify:
        some = empty_model(source).to(kind).to_empty(device="cpu")  # an adapter gets the type of its model
        _compare(_adapter_weights(peft.PeftModel.from_pretrained(some, new, autocast_adapter_dtype=False)), tensors)
    return f"LoRA of rank {config.r}, {sum(weight.numel() for weight in tensors.values()):,} parameters, {kind}"


def _adapter_weights(model: Any) -> Weights:
    """A PEFT model's adapter, with the names of PEFT's files."""
    from peft import get_peft_model_state_dict

    # By default, PEFT asks the hub whether the base model's embeddings were resized.
    state: Weights = get_peft_model_state_dict(model, save_embedding_layers=False)
    return state


def _compare(loaded: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    if wrong := sorted(loaded.keys() ^ expected.keys()):
        raise Different(f"other weights than expected: {', '.join(wrong[:5])}")
    for name, weight in expected.items():
        if loaded[name].dtype != weight.dtype or not torch.equal(loaded[name], weight):
            raise Different(f"{name} is not what the checkpoint holds")
