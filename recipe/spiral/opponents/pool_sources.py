"""Members of a pool that come from elsewhere: another run, a folder of exports, any Hugging Face folder or adapter.

``form_of`` says what a folder is, ``members_of`` lists the members that a path holds, and ``materialise`` puts one into
a pool. Of weights in Hugging Face's format only safetensors are read, and no code is run.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from ..players.seats import BASE
from ..storage.checkpoints import POOL, config_file, folder_of
from ..storage.disk import link_or_copy
from ..storage.manifest import MANIFEST, TEXTS, changed_files

#: A whole model, a PEFT adapter, or a checkpoint of ours, which is exported first.
Form = Literal["hf", "adapter", "checkpoint"]

_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_INDEX = "model.safetensors.index.json"
_NUMBER = re.compile(r"\d+$")
_CHECKPOINT = re.compile(r"global_step_\d+")
_WANTED = (
    "a checkpoint (global_step_N), a run with checkpoints, a Hugging Face folder (config.json with *.safetensors), a "
    "PEFT adapter (adapter_config.json with adapter_model.safetensors), or a folder of such folders"
)


def form_of(folder: Path) -> Form | None:
    """What a folder is, by the names in it; None: it cannot be a member. Whether its files are whole is not checked."""
    if _CHECKPOINT.fullmatch(folder.name) and (folder / "actor").is_dir():
        return "checkpoint"
    if (folder / _ADAPTER[0]).is_file():
        return "adapter"
    has_weights = any(any(folder.glob(kind)) for kind in ("*.safetensors", "*.safetensors.index.json", "*.bin"))
    return "hf" if (folder / "config.json").is_file() and has_weights else None


def missing_files(folder: Path) -> list[str]:
    """Which files a model or an adapter lacks, or has cut short; [] if it is whole."""
    form = form_of(folder)
    if form not in ("hf", "adapter"):
        return ["config.json with *.safetensors, or adapter_config.json"]
    return [name for name in _weights(folder, form) if Path(name).name != name or not _whole(folder / name)] + [
        name
        for name in ("config.json" if form == "hf" else _ADAPTER[0], _INDEX)
        if (folder / name).exists() and _read(folder / name) is None
    ]


def check_unchanged(folder: Path, setting: str) -> None:
    """A ``ValueError`` if weights are not what their folder's manifest says, if it has one. All of them are read."""
    if changed := changed_files(folder):
        raise ValueError(
            f"{setting}: {folder}: damaged: {', '.join(changed[:3])}: not what {MANIFEST} there says; restore it, or, "
            f"if it was changed on purpose, remove {MANIFEST}"
        )


def _weights(folder: Path, form: Form) -> list[str]:
    """The names of the files of weights that a folder must have."""
    if form == "adapter":
        return [_ADAPTER[1]]
    try:
        return sorted({str(name) for name in _read(folder / _INDEX)["weight_map"].values()})
    except (KeyError, TypeError, AttributeError):
        return sorted(file.name for file in folder.glob("*.safetensors")) or ["model.safetensors"]


def _whole(file: Path) -> bool:
    """Whether a safetensors file is as long as its own header says."""
    try:
        with safe_open(file, framework="numpy"):
            return True
    except (OSError, SafetensorError):
        return False


def _read(file: Path) -> Any:
    """A JSON file's content; None if it is not there, or cut short."""
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def is_hub_id(path: str) -> bool:
    """Whether a path is the id of a model on the hub, as ``transformers`` would take it."""
    return not path.startswith(("/", ".", "~")) and path.count("/") <= 1 and not Path(path).is_dir()


def local(path: str) -> Path:
    """A model's folder; of a hub's id, that of the copy in the hub's cache, which is filled if it is not there yet.

    It is a ``ValueError`` if the hub has no such model, or cannot be reached.
    """
    folder = Path(path).expanduser()
    if not is_hub_id(path):
        return folder
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(path, allow_patterns=["*.json", "*.safetensors"]))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{path}: is no folder here, and could not be had from the hub: {reason}") from error


def members_of(
    path: Path, start: int = 0, interval: int = 1, size: int | None = None, setting: str = "path"
) -> list[tuple[int, Path, Form]]:
    """The members of a pool from elsewhere, in the order of their steps.

    Args:
        path: a run (its checkpoints are taken, or else its pool), a folder of checkpoints, of exports or of other
            Hugging Face folders or adapters, or one such folder.
        start: the first step that is taken.
        interval: after each that is taken, the next is at least so many steps later.
        size: how many are taken, from the first on; None: all.
        setting: what ``path`` is called in the config, for messages.

    Returns:
        (step, folder, form). The step is the number in which a folder's name ends, ``base`` is 0; where other names
        have none, folders are counted by their names, from 0.

    Raises:
        ValueError: there is nothing to take, or something that is taken is not whole.
    """
    numbers = (("start", start, 0), ("interval", interval, 1), ("size", 1 if size is None else size, 1))
    for name, value, least in numbers:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{setting}: {name}={value}: must be a whole number from {least} up")
    path = path.expanduser().absolute()
    if not path.is_dir():
        raise ValueError(f"{setting}={path}: there is no such folder")
    members = _numbered(_candidates(path))
    if not members:
        raise ValueError(f"{setting}={path}: holds nothing to play against; must be {_WANTED}")
    taken: list[tuple[int, Path, Form]] = []
    for step, folder, form in members:
        if step >= start and (not taken or step >= taken[-1][0] + interval) and (size is None or len(taken) < size):
            taken.append((step, folder, form))
    if not taken:
        raise ValueError(
            f"{setting}={path}: start={start}: its last member is of step {members[-1][0]}; choose a smaller start"
        )
    for _, folder, form in taken:
        _check_whole(folder, form, setting)
    return taken


def _candidates(path: Path) -> list[tuple[Path, Form]]:
    """The members that are at a path, or in it."""
    if (form := form_of(path)) is not None:
        return [(path, form)]
    of_the_run = [folder_of(path)] if config_file(path).is_file() else []
    for folder in (*of_the_run, path / "checkpoints", path, path / POOL):
        inside = sorted(folder.iterdir()) if folder.is_dir() else []
        shown = [sub for sub in inside if sub.is_dir() and not sub.name.startswith((".", "unfinished"))]
        if candidates := [(sub, form) for sub in shown if (form := form_of(sub)) is not None]:
            return candidates
    return []


def _numbered(candidates: list[tuple[Path, Form]]) -> list[tuple[int, Path, Form]]:
    """Each with the number in which its name ends; where other names have none, counted in their order."""
    numbers = ["0" if folder.name == BASE else "".join(_NUMBER.findall(folder.name)) for folder, _ in candidates]
    if len(candidates) > 1 and not all(numbers):
        numbers = list(map(str, range(len(candidates))))
    numbered = [(int(number or 0), folder, form) for number, (folder, form) in zip(numbers, candidates, strict=True)]
    return sorted(numbered, key=lambda member: (member[0], member[1].name))


def _check_whole(folder: Path, form: Form, setting: str) -> None:
    if form == "checkpoint":
        from ..export.source import Source  # imports torch

        Source.find(folder)
    elif missing := missing_files(folder):
        only = " (pytorch's *.bin are not read: save it as safetensors)" if any(folder.glob("*.bin")) else ""
        raise ValueError(
            f"{setting}: {folder} is not whole: missing or cut short: {', '.join(missing[:3])}{only}; restore it, or "
            "take it away"
        )


def materialise(source: Path, target: Path) -> None:
    """Fill the empty folder ``target`` with a member from elsewhere, which is not changed.

    A checkpoint of ours is exported: a whole model, or with LoRA an adapter. Of other folders, what a member needs is
    linked, or copied from another disk.

    Raises:
        ValueError: it is nothing that could be a member, is not whole, is damaged, or cannot be exported.
    """
    source = source.expanduser().absolute()
    form = form_of(source)
    if form is None:
        raise ValueError(f"{source}: is nothing to play against: must be a checkpoint, a model or an adapter")
    _check_whole(source, form, "pool")
    if form == "checkpoint":
        from ..export import export  # imports torch

        export(source, target)
        return
    check_unchanged(source, "pool")
    texts = {file.name for file in source.iterdir() if file.is_file() and file.suffix in TEXTS} - {MANIFEST}
    for name in sorted(texts | set(_weights(source, form))):
        link_or_copy(source / name, target / name)
