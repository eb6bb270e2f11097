"""Folders of weights that vLLM and transformers load, and what identifies the weights.

Checkpoints are exported into such folders, once.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ...games import id_of
from ...opponents.model_files import check_unchanged, check_whole, local, missing_files
from ...players.prompts import check_words
from ...players.seeds import derive_seed
from ...processes.composing import RECIPE  # and the resolvers of its config
from ...processes.terminal import visible
from ...storage.checkpoints import config_file
from ...storage.disk import read_json, write_whole
from ...storage.manifest import changed_files
from ...storage.run_config import load_config
from ..models import MADE_FOR
from ..opponents.elsewhere import form_of
from .policies import Asked

#: The config groups of models.
_GROUPS = RECIPE / "config" / "model"
_TEXTS = ("prompt.template", "prompt.style", "actor_rollout_ref.model.path")
#: Further files that decide what a policy answers.
_CONFIGS = ("config.json", "adapter_config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja")
#: How many pieces of a large file are hashed, and their size in bytes.
_PIECES, _PIECE = 1024, 4096
_HUB = ["*.safetensors", "*.safetensors.index.json", "*.json", "*.jinja", "*.txt", "*.model"]


@dataclass(frozen=True)
class Run:
    """What an evaluation takes from a run's config, where there is one: its folder's name, how it asks its policy, and
    the model that its training started from."""

    name: str
    asked: Asked = field(default_factory=Asked)
    model: str | None = None


def run_of(path: Path) -> Run:
    """The run that a folder is, or that it is a part of (its ``checkpoints``, its ``pool``, one of the snapshots)."""
    for folder, config in configs_of(path):
        with suppress(ValueError, OmegaConfBaseException):
            return _run(folder.name, config)
    return Run(path.name)


def run_of_embedded(model: str) -> Run:
    """What runs that start from an embedded model have, unless they set it otherwise: its config group's."""
    group = "tiny" if model in MADE_FOR else model
    return _run(model, OmegaConf.load(_GROUPS / f"{group}.yaml"))


def _run(name: str, config: Any) -> Run:
    texts = [OmegaConf.select(config, key) for key in _TEXTS]
    template, style, model = (None if value is None else str(value) for value in texts)
    lengths = [OmegaConf.select(config, f"data.max_{part}_length") for part in ("prompt", "response")]
    known = all(isinstance(length, int) and length > 0 for length in lengths)
    chat = OmegaConf.select(config, "data.apply_chat_template_kwargs")
    kwargs: Any = OmegaConf.to_container(chat, resolve=True) if isinstance(chat, DictConfig) else {}
    by_game = _by_game(OmegaConf.to_container(config).get("games"))
    return Run(name, Asked(template, style, by_game, kwargs, (lengths[0], lengths[1]) if known else None), model)


def configs_of(path: Path) -> Iterator[tuple[Path, DictConfig]]:
    """The readable configs of runs that a folder can be a part of, nearest first, each with its run's folder."""
    for folder in (path, *path.parents[:2]):
        if (file := config_file(folder)).is_file():
            try:
                config = load_config(file)
            except (OSError, ValueError):
                continue
            yield folder, config


def read_tokenizer(folder: Path) -> Any:
    """The tokenizer in a folder.

    Raises:
        ValueError: transformers cannot read it, or there is none.
    """
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # a damaged file can raise anything, also plain Exceptions
        reason = " ".join(str(error).split())[:300]
        raise ValueError(
            f"{folder}: transformers reads no tokenizer there ({type(error).__name__}: {reason})"
        ) from error
    check_words(tokenizer, str(folder))
    return tokenizer


def _by_game(games: Any) -> dict[str, dict[str, str]]:
    """What the entries of a run's ``games`` say of prompts, by the games' ids; unknown games are left out."""
    prompts = {}
    for entry in games if isinstance(games, list) else ():
        if isinstance(entry, dict):
            prompt = {key: str(entry[key]) for key in ("template", "style") if entry.get(key)}
            with suppress(ValueError):
                prompts[id_of(str(entry.get("id")))] = prompt
    return {game: prompt for game, prompt in prompts.items() if prompt}


def exported(checkpoint: Path, cache: Path) -> Path:
    """Export a checkpoint below ``cache`` as a Hugging Face model, or a LoRA adapter, unless that was done already.

    It is exported again if the checkpoint has changed. Returns the folder.

    Raises:
        ExportError, BrokenCheckpoint: it cannot be exported.
    """
    from transformers.utils import logging as transformers_logging

    from ...export.writing import export  # imports torch

    # Progress bars, and a warning that concerns only those who train with what they load.
    transformers_logging.disable_progress_bar()
    logging.getLogger("torch.distributed.device_mesh").setLevel(logging.ERROR)
    place = f"{checkpoint.parents[1].name}-{derive_seed('export', str(checkpoint)):016x}"
    target = cache / place / checkpoint.name
    note, state = target.with_name(f"{target.name}.json"), _state(checkpoint)
    try:
        same = json.loads(note.read_text(encoding="utf-8")) == state
    except (OSError, ValueError):
        same = False
    if not same or missing_files(target) or changed_files(target):
        print(visible(f"exporting {checkpoint}"), flush=True)
        export(checkpoint, target, force=True)
        write_whole(note, json.dumps(state) + "\n")
    return target


def _state(checkpoint: Path) -> dict[str, list[int]]:
    """Sizes and times of a checkpoint's weights."""
    stats = {file.name: file.stat() for file in sorted((checkpoint / "actor").glob("*.pt"))}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def adapter_base(adapter: Path, given: object, setting: str) -> Path:
    """The folder of the model that an adapter belongs to: the given one, or the one that the adapter's config names.

    Raises:
        ValueError: neither is there, or one of them is damaged.
    """
    check_unchanged(adapter, setting)
    base = given
    if base is None:
        try:
            base = read_json(adapter / "adapter_config.json")["base_model_name_or_path"]
        except (OSError, ValueError, KeyError):
            base = None
    if not base:
        raise ValueError(
            f"{setting}: {adapter}: its config names no base model; give it: {{path: ..., base: ...}}, or export the "
            "checkpoint with --merge and evaluate that"
        )
    return whole_model(str(base), f"{setting}: base")


def whole_model(path: str, setting: str) -> Path:
    """A model's folder: the one at ``path``, or the hub's of that id, downloaded unless it is there already.

    Raises:
        ValueError: there is none, it is not whole, or it is damaged.
    """
    folder = local(path, _HUB, f"{setting}: ").resolve()
    if form_of(folder) != "hf":
        raise ValueError(f"{setting}: {folder}: is no whole model: must be a folder with config.json and *.safetensors")
    check_whole(folder, setting)
    check_unchanged(folder, setting)
    return folder


def computed_in(model: Path, dtype: str) -> str:
    """``engine.dtype`` as it is for this model, for vLLM and transformers alike.

    vLLM's auto computes in 16 bits on a GPU where weights are in float32, and transformers' does not: a table of
    probabilities would be of another policy than the one that plays.
    """
    import torch

    if dtype != "auto" or not torch.cuda.is_available():
        return dtype
    config = read_json(model / "config.json")
    stored = config.get("dtype") or config.get("torch_dtype")  # its earlier name
    return "bfloat16" if stored != "float16" and torch.cuda.get_device_capability() >= (8, 0) else "float16"


def weights_identity(model: Path, adapter: Path | None) -> dict[str, Any]:
    """What identifies a model, and the adapter on it, so that continuing an evaluation with other weights is noticed.

    Of a file it is the size, and a hash of so many pieces spread evenly over it: to hash files of some GiB whole would
    take minutes. Small files are hashed whole.
    """
    identity: dict[str, Any] = {"kind": "model" if adapter is None else "adapter"}
    for part, folder in (("model", model), ("adapter", adapter)):
        if folder is not None:
            files = [*sorted(folder.glob("*.safetensors")), *(folder / name for name in _CONFIGS)]
            identity[part] = {file.name: _digest(file) for file in files if file.is_file()}
    return identity


def _digest(file: Path) -> str:
    size, digest = file.stat().st_size, hashlib.blake2b(digest_size=16)
    step = max(_PIECE, size // _PIECES)
    with file.open("rb") as content:
        for place in (*range(0, size, step), max(0, size - _PIECE)):
            content.seek(place)
            digest.update(content.read(_PIECE))
    return f"{size} {digest.hexdigest()}"
