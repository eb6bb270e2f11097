"""Writes the new folder: a model or an adapter, the tokenizer, and a model card; and checks that transformers and PEFT
read what the checkpoint holds."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from ..processes.terminal import visible
from ..storage.checkpoints import EXPORTED, read_state
from ..storage.disk import unwritable
from ..storage.manifest import MANIFEST, TEXTS, WEIGHTS
from .lora import Adapter, adapter_weights
from .source import ExportError, Source
from .weights import DTYPES, check_finite, empty_model

#: Of a model's texts: what is written anew. For the config of an adapter transformers would load another base model.
_NOT_COPIED = ("/config.json", "/adapter_config.json", ".index.json", f"/{MANIFEST}")
#: What of a run's config says how its model is asked, and by which rules it plays. No paths.
_PLAY = (
    *("games", "prompt.template", "prompt.style", "rules"),
    *("data.max_prompt_length", "data.max_response_length", "data.apply_chat_template_kwargs"),
    *(f"actor_rollout_ref.rollout.{key}" for key in ("temperature", "top_p", "top_k")),
)
#: How a model, or an adapter (True), is loaded, for the card: the library, its imports, the call.
_LOADING = {
    False: (
        "transformers",
        "from transformers import AutoModelForCausalLM, AutoTokenizer",
        'model = AutoModelForCausalLM.from_pretrained("FOLDER")',
    ),
    True: (
        "peft",
        "from peft import PeftModel\nfrom transformers import AutoTokenizer",
        'model = PeftModel.from_pretrained(base_model, "FOLDER")',
    ),
}


class Different(RuntimeError):
    """What transformers reads from the new folder is not what the checkpoint holds."""


def check_target(target: Path, checkpoint: Path, force: bool) -> None:
    """Raises ExportError if ``target`` may not be written."""
    if target.is_relative_to(checkpoint) or checkpoint.is_relative_to(target):
        raise ExportError(f"{target}: must neither hold the checkpoint nor lie in it")
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target}: is a file")
    if why := unwritable(target.parent):
        raise ExportError(f"{target}: {why}; name another folder")
    if target.is_dir() and any(target.iterdir()):
        if not force:
            raise ExportError(f"{target}: is not empty; name another folder, or replace it with --force")
        if not any([*target.glob(WEIGHTS), *target.glob(MANIFEST)]):  # a run, or somebody's work: "$UNSET" is here
            raise ExportError(f"{target}: holds no model, so --force does not replace it; name another folder")


def copy_texts(huggingface: Path, new: Path) -> None:
    """Copy tokenizer, chat template and generation config; the model writes its config itself."""
    for file in sorted(huggingface.rglob("*")):
        name = file.relative_to(huggingface)
        if file.is_file() and file.suffix in TEXTS and not str(file).endswith(_NOT_COPIED):
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, new / name)


def write_settings(new: Path, source: Source) -> None:
    """Write what evaluation and play need to know of the run besides the model; nothing if the run has no config."""
    settings = OmegaConf.create()
    for key in _PLAY:
        if (value := source.setting(key)) is not None:
            OmegaConf.update(settings, key, value)
    if settings:
        OmegaConf.save(settings, new / EXPORTED)


def write_model(new: Path, source: Source, model: Any, dtype: str | None, verify: bool) -> str:
    """Write a whole model into a folder with its texts; returns a description in a few words."""
    if dtype is not None:
        model.to(DTYPES[dtype])
    check_finite(dict(model.named_parameters()), dtype)
    generation = new / "generation_config.json"
    original = generation.read_bytes() if generation.is_file() else None
    model.save_pretrained(new, max_shard_size="5GB")
    if original is not None:
        generation.write_bytes(original)
    what = f"{model.num_parameters():,} parameters, {_name(model.dtype)}"
    (new / "README.md").write_text(card(source, what, is_adapter=False), encoding="utf-8")
    if verify:
        verify_model(new, model)
    return what


def write_adapter(new: Path, source: Source, adapter: Adapter, dtype: str | None, verify: bool) -> str:
    """Write an adapter into a folder with the tokenizer; returns a description in a few words."""
    from safetensors.torch import save_file

    if dtype is not None:
        adapter.weights = {name: weight.to(DTYPES[dtype]) for name, weight in adapter.weights.items()}
    check_finite(adapter.weights, dtype)
    adapter.config.save_pretrained(new)
    tensors = {name: weight.contiguous() for name, weight in adapter.weights.items()}
    save_file(tensors, new / "adapter_model.safetensors", metadata={"format": "pt"})
    kind = next(iter(tensors.values())).dtype
    size = sum(weight.numel() for weight in tensors.values())
    what = f"LoRA of rank {adapter.config.r}, {size:,} parameters, {_name(kind)}"
    (new / "README.md").write_text(card(source, what, is_adapter=True), encoding="utf-8")
    if verify:
        verify_adapter(new, adapter, source)
    return what


def card(source: Source, what: str, is_adapter: bool) -> str:
    """The model card: where the model comes from, without paths of this machine."""
    state = read_state(source.folder)
    name = Path(str(source.setting("trainer.experiment_name") or source.run)).name
    project = source.setting("trainer.project_name")
    path = source.setting("actor_rollout_ref.model.path")
    base = source.hub_id() or (Path(str(path)).name if path else None)
    facts = {
        "run": f"{Path(str(project)).name}/{name}" if project else name,
        "step": source.step,
        "seed": state.get("settings", state).get("seed", source.setting("seed")),
        "games": ", ".join(source.games()),
        "trained from": base,
        "prompt template": source.setting("prompt.template"),
        "prompt style": source.setting("prompt.style"),
        "weights": what,
    }
    library, imports, load = _LOADING[is_adapter]
    lines = [
        *("---", f"library_name: {library}", "pipeline_tag: text-generation"),
        *([f"base_model: {source.hub_id()}"] if source.hub_id() else []),
        *("tags: [spiral, verl, self-play, reinforcement-learning]", "---", ""),
        *(f"# {_cell(name)}, step {source.step}{', reference policy' * source.reference}", ""),
        "Trained by self-play on two-player zero-sum text games: [SPIRAL](https://arxiv.org/abs/2506.24119), on verl.",
        *("", "| | |", "| --- | --- |"),
        *(f"| {key} | {_cell(value)} |" for key, value in facts.items() if value not in (None, "")),
        *("", "```python", imports, "", load, 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")', "```"),
    ]
    return "\n".join(lines) + "\n"


def _cell(value: object) -> str:
    """A text in a Markdown table, of which it ends no cell and no line."""
    return visible(str(value), most_lines=1).replace("|", "\\|").replace("<", "&lt;")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def verify_model(folder: Path, model: Any) -> None:
    """Let transformers read ``folder``. Raises Different: a weight is not that of ``model``."""
    from transformers import AutoModelForCausalLM

    loaded, report = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, trust_remote_code=False)
    if wrong := [f"{kind}: {names}" for kind, names in report.items() if names]:
        raise Different(f"transformers does not read it as it is: {'; '.join(wrong)}")
    _same(loaded.state_dict(), model.state_dict())


def verify_adapter(folder: Path, adapter: Adapter, source: Source) -> None:
    """Let PEFT read ``folder``. Raises Different: the adapter is not what the checkpoint holds."""
    import peft

    # PEFT gives an adapter the type of the model that it is loaded for
    kind = next(iter(adapter.weights.values())).dtype
    some = empty_model(source.huggingface).to(kind).to_empty(device="cpu")
    _same(adapter_weights(peft.PeftModel.from_pretrained(some, folder, autocast_adapter_dtype=False)), adapter.weights)


def _same(loaded: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    if loaded.keys() != expected.keys():
        raise Different(f"other weights than expected: {', '.join(sorted(loaded.keys() ^ expected.keys())[:5])}")
    for name, weight in expected.items():
        if loaded[name].dtype != weight.dtype or not torch.equal(loaded[name], weight):
            raise Different(f"{name} is not what the checkpoint holds")
