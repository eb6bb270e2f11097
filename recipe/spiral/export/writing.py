"""From a checkpoint to a Hugging Face folder: a model or an adapter, the tokenizer, and a model card; and whether
transformers and PEFT read from it what the checkpoint holds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from ..storage.disk import whole_folder
from ..storage.manifest import MANIFEST, TEXTS, WEIGHTS, write_manifest
from ..storage.run_files import EXPORTED
from .lora import Adapter, adapter_of, adapter_weights, merged, without_adapter
from .source import ExportError, Source, Weights

DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32}
#: Of a model's texts: what is written anew. For the config of an adapter transformers would load another base model.
_NOT_COPIED = ("/config.json", "/adapter_config.json", ".index.json", f"/{MANIFEST}")
#: What of a run's config says how its model is asked, and by which rules it plays. No paths.
_PLAY = (
    *("games", "prompt.template", "prompt.style", "rules"),
    *("data.max_prompt_length", "data.max_response_length", "data.apply_chat_template_kwargs"),
    *(f"actor_rollout_ref.rollout.{key}" for key in ("temperature", "top_p", "top_k")),
)


class Different(RuntimeError):
    """What transformers reads from the new folder is not what the checkpoint holds."""


def export(
    checkpoint: Path,
    target: Path,
    step: int | None = None,
    dtype: str | None = None,
    merge: bool = False,
    force: bool = False,
    verify: bool = False,
    reference: bool = False,
) -> str:
    """Make the folder ``target``, completely or not at all; returns in a line what was done.

    Args:
        checkpoint: a folder ``global_step_N``, or a run's folder, whose latest checkpoint is taken.
        step: the step of the run's checkpoint to take.
        dtype: one of ``DTYPES``; None: the checkpoint's.
        merge: merge a LoRA adapter into its model.
        force: replace ``target`` if it is a model.
        verify: load the result and compare every tensor.
        reference: take the checkpoint's reference policy instead of its policy.

    Raises:
        BrokenCheckpoint: the checkpoint is not what was written.
        ExportError: it cannot be exported as asked.
        Different: with ``verify``: the result is not what the checkpoint holds.
        OSError: it cannot be written.
    """
    source, target = Source.find(checkpoint, step, reference), target.expanduser().resolve()
    if target.is_relative_to(source.folder) or source.folder.is_relative_to(target):
        raise ExportError(f"{target}: must neither hold the checkpoint nor lie in it")
    if target.is_dir() and any(target.iterdir()) and not (force and any(target.glob(WEIGHTS))):
        raise ExportError(f"{target}: is not empty; name another folder" + (", or add --force" if not force else ""))
    weights = source.weights()
    if dtype is not None:
        weights = {name: weight.to(DTYPES[dtype]) for name, weight in weights.items()}
    if bad := [name for name, weight in weights.items() if not torch.isfinite(weight).all()]:
        raise ExportError(f"{bad[0]}: has values that are no finite numbers of type {dtype or 'its own'}")
    adapter = adapter_of(weights, source, [name for name, _ in empty_model(source).named_modules()])
    base = without_adapter(weights)
    if merge and (adapter is None or not base):
        lacks = "no LoRA weights" if adapter is None else "the adapter alone, without its model"
        raise ExportError(f"--merge: {source.folder} holds {lacks}; leave it out")
    with whole_folder(target) as new:
        for file in source.huggingface.rglob("*"):
            if file.suffix in TEXTS and not str(file).endswith(_NOT_COPIED):
                (new / file.relative_to(source.huggingface)).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, new / file.relative_to(source.huggingface))
        settings = OmegaConf.create()
        for key in _PLAY:
            if (value := source.setting(key)) is not None:
                OmegaConf.update(settings, key, value)
        OmegaConf.save(settings, new / EXPORTED)
        if adapter is not None and not merge:
            what = _write_adapter(new, source, adapter, verify)
        else:
            model = whole_model(source, base)
            what = _write_model(new, model if adapter is None else merged(model, adapter), verify)
        write_manifest(new)
        (new / "README.md").write_text(_card(source, what, adapter is not None and not merge), encoding="utf-8")
    of = "the reference policy of " * reference
    return f"exported {of}step {source.state['step']}{', verified' * verify}: {what}: {target}"


def empty_model(source: Source) -> Any:
    """The model that a checkpoint's config describes, without weights."""
    from accelerate import init_empty_weights
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        # "eager", because the training's attention may need a package that is not installed here.
        config = AutoConfig.from_pretrained(source.huggingface, attn_implementation="eager")
        with init_empty_weights():
            return AutoModelForCausalLM.from_config(config)
    except Exception as error:  # what a config asks for can fail in any way
        raise ExportError(f"{source.huggingface / 'config.json'}: {type(error).__name__}: {error}") from error


def whole_model(source: Source, weights: Weights) -> Any:
    """The model with exactly these weights. Raises ExportError: one is missing, unknown, or of another shape."""
    model = empty_model(source)
    try:
        unknown = model.load_state_dict(weights, strict=False, assign=True).unexpected_keys
    except RuntimeError as error:  # shapes
        raise ExportError(f"the weights do not fit {source.huggingface / 'config.json'}: {error}") from error
    model.tie_weights()
    missing = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if missing or unknown:
        wrong = [f"{name} is missing" for name in missing] + [f"{name} is unknown" for name in unknown]
        raise ExportError(f"the weights do not fit {source.huggingface / 'config.json'}: {', '.join(wrong[:5])}")
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
        _same(loaded.state_dict(), model.state_dict())
    return f"{model.num_parameters():,} parameters, {_name(model.dtype)}"


def _write_adapter(new: Path, source: Source, adapter: Adapter, verify: bool) -> str:
    """Write an adapter; returns a description in a few words."""
    import peft
    from safetensors.torch import save_file

    adapter.config.save_pretrained(new)
    tensors = {name: weight.contiguous() for name, weight in adapter.weights.items()}
    save_file(tensors, new / "adapter_model.safetensors", metadata={"format": "pt"})
    kind = next(iter(tensors.values())).dtype
    if verify:
        some = empty_model(source).to(kind).to_empty(device="cpu")  # an adapter gets the type of its model
        _same(adapter_weights(peft.PeftModel.from_pretrained(some, new, autocast_adapter_dtype=False)), tensors)
    size = sum(weight.numel() for weight in tensors.values())
    return f"LoRA of rank {adapter.config.r}, {size:,} parameters, {_name(kind)}"


def _same(loaded: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    if wrong := sorted(loaded.keys() ^ expected.keys()):
        raise Different(f"other weights than expected: {', '.join(wrong[:5])}")
    for name, weight in expected.items():
        if loaded[name].dtype != weight.dtype or not torch.equal(loaded[name], weight):
            raise Different(f"{name} is not what the checkpoint holds")


def _card(source: Source, what: str, is_adapter: bool) -> str:
    """The model card: where the model comes from, without paths of this machine."""
    path = source.setting("actor_rollout_ref.model.path")
    base = source.hub_id() or Path(str(path)).name
    library, load = "transformers", 'AutoModelForCausalLM.from_pretrained("FOLDER")'
    if is_adapter:
        library, load = "peft", 'PeftModel.from_pretrained(base_model, "FOLDER")'
    facts = {
        "run": source.run,
        "step": source.state["step"],
        "seed": source.state["settings"]["seed"],
        "games": source.setting("games"),
        "trained from": base,
        "prompt template": source.setting("prompt.template"),
        "weights": what,
    }
    lines = [
        *("---", f"library_name: {library}", "pipeline_tag: text-generation"),
        *([f"base_model: {source.hub_id()}"] if source.hub_id() else []),
        *("tags: [spiral, verl, self-play, reinforcement-learning]", "---", ""),
        f"# {source.run}, step {source.state['step']}{', reference policy' * source.reference}",
        "",
        "Trained by self-play on two-player zero-sum text games: [SPIRAL](https://arxiv.org/abs/2506.24119), on verl.",
        *("", "| | |", "| --- | --- |"),
        *(f"| {key} | {' '.join(str(value).split()).replace('|', '')} |" for key, value in facts.items()),
        f"\n```python\nmodel = {load}\n```",
    ]
    return "\n".join(lines) + "\n"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
