"""Writes the new folder, completely or not at all: a model or an adapter, the tokenizer, and a model card."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from ..storage.checkpoints import EXPORTED, read_state
from ..storage.manifest import MANIFEST, TEXTS, WEIGHTS, write_manifest
from .lora import Adapter
from .source import ExportError, Source
from .verification import continuation, verify_adapter, verify_model
from .weights import DTYPES, Weights, check_finite

#: Of a model's texts: what the model writes itself.
_NOT_COPIED = ("/config.json", ".index.json", f"/{MANIFEST}")
#: What of a run's config says how its model is asked, and by which rules it plays. No paths.
_PLAY = (
    *("games", "prompt.template", "prompt.style", "rules"),
    *("data.max_prompt_length", "data.max_response_length", "data.apply_chat_template_kwargs"),
    *(f"actor_rollout_ref.rollout.{key}" for key in ("temperature", "top_p", "top_k")),
)


def check_target(target: Path, checkpoint: Path, force: bool) -> None:
    """Raises ExportError if ``target`` may not be written."""
    if target.is_relative_to(checkpoint) or checkpoint.is_relative_to(target):
        raise ExportError(f"{target}: must neither hold the checkpoint nor lie in it")
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target}: is a file")
    if not force and target.is_dir() and any(target.iterdir()):
        raise ExportError(f"{target}: is not empty; name another folder, or replace it with --force")


def put(target: Path, build: Callable[[Path], str], force: bool) -> str:
    """Let ``build`` fill a folder beside ``target``, and move it there. If ``build`` fails, ``target`` is unchanged.

    Returns:
        What ``build`` returns.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        new, old = unfinished / "new", unfinished / "old"
        new.mkdir()
        result = build(new)
        write_manifest(new, WEIGHTS)
        for file in new.rglob("*"):
            file.chmod(file.stat().st_mode | (new.stat().st_mode & 0o444))  # safetensors lets only the owner read
        if target.exists():
            if not force:
                target.rmdir()  # fails if it is not empty
            else:
                target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return result


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
        print(continuation(verify_model(new, model), new, source))
    return what


def write_adapter(
    new: Path, source: Source, weights: Weights, adapter: Adapter, dtype: str | None, verify: bool
) -> str:
    """Write an adapter into a folder with the tokenizer; returns a description in a few words."""
    adapter.convert(dtype)
    adapter.write(new)
    what = f"LoRA of rank {adapter.config.r}, {adapter.size:,} parameters, {_name(adapter.dtype)}"
    (new / "README.md").write_text(card(source, what, is_adapter=True), encoding="utf-8")
    if verify:
        model = verify_adapter(new, adapter, source, weights)
        print("no continuation: no base model here" if model is None else continuation(model, new, source))
    return what


def card(source: Source, what: str, is_adapter: bool) -> str:
    """The model card: where the model comes from, without paths of this machine."""
    state = read_state(source.folder)
    name = Path(str(source.setting("trainer.experiment_name") or source.run)).name
    project = source.setting("trainer.project_name")
    path = source.setting("actor_rollout_ref.model.path")
    embedded = source.setting("embedded_model")
    base = source.hub_id() or (
        Path(str(path)).name if path else f"the embedded model `{embedded}`" if embedded else None
    )
    facts = {
        "run": f"{Path(str(project)).name}/{name}" if project else name,
        "step": state.get("step", source.step),
        "seed": state.get("seed", source.setting("seed")),
        "games": ", ".join(source.games()),
        "trained from": base,
        "prompt template": source.setting("prompt.template"),
        "prompt style": source.setting("prompt.style"),
        "weights": what,
    }
    head = ["library_name: " + ("peft" if is_adapter else "transformers"), "pipeline_tag: text-generation"]
    head += [f"base_model: {source.hub_id()}"] if source.hub_id() else []
    head += ["tags: [spiral, verl, self-play, reinforcement-learning]"]
    table = [f"| {key} | {value} |" for key, value in facts.items() if value not in (None, "")]
    load = (
        'model = PeftModel.from_pretrained(base_model, "FOLDER")'
        if is_adapter
        else 'model = AutoModelForCausalLM.from_pretrained("FOLDER")'
    )
    imports = ["from peft import PeftModel", "from transformers import AutoTokenizer"]
    lines = [
        *("---", *head, "---", ""),
        *(f"# {name}, step {source.step}", ""),
        "Trained by self-play on two-player zero-sum text games: [SPIRAL](https://arxiv.org/abs/2506.24119), on verl.",
        *("", "| | |", "| --- | --- |", *table, ""),
        "```python",
        *(imports if is_adapter else ["from transformers import AutoModelForCausalLM, AutoTokenizer"]),
        *("", load, 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")'),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
