"""Folders of models and adapters that can play: whether they are whole, and how one gets into a pool.

Of weights in Hugging Face's format only safetensors are read, and no code is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError, safe_open

from ..storage.disk import link_or_copy, read_json
from ..storage.manifest import MANIFEST, TEXTS, changed_files

#: A whole model, or a PEFT adapter.
Form = Literal["hf", "adapter"]

_ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
_INDEX = "model.safetensors.index.json"
#: Small files, of which the hub gives one for each model that it has.
CONFIGS = ("*config.json",)
#: Keys of a model's config that do not change what it computes; so do those that begin with "_".
_IRRELEVANT = {
    *("architectures", "attention_dropout", "dtype", "initializer_range", "max_position_embeddings", "torch_dtype"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "transformers_version", "use_cache"),
}


def form_of(folder: Path) -> Form | None:
    """What a folder is, by the names in it; None: nothing that can play. Whether its files are whole is not checked."""
    if (folder / _ADAPTER[0]).is_file():
        return "adapter"
    has_weights = any(any(folder.glob(kind)) for kind in ("*.safetensors", "*.safetensors.index.json", "*.bin"))
    return "hf" if (folder / "config.json").is_file() and has_weights else None


def missing_files(folder: Path) -> list[str]:
    """Which files a model or an adapter lacks, or has cut short; [] if it is whole."""
    form = form_of(folder)
    if form is None:
        return ["config.json with *.safetensors, or adapter_config.json"]
    texts = ("config.json", _INDEX) if form == "hf" else _ADAPTER[:1]
    cut = [name for name in texts if (folder / name).exists() and _read(folder / name) is None]
    return cut + [name for name in weight_files(folder, form) if Path(name).name != name or not _whole(folder / name)]


def check_whole(folder: Path, setting: str) -> None:
    """A ``ValueError`` if files of a model or an adapter are missing or cut short."""
    if missing := missing_files(folder):
        only = " (pytorch's *.bin are not read: save it as safetensors)" if any(folder.glob("*.bin")) else ""
        raise ValueError(f"{setting}: {folder} is not whole: missing or cut short: {', '.join(missing[:3])}{only}")


def check_unchanged(folder: Path, setting: str) -> None:
    """A ``ValueError`` if weights are not what their folder's manifest says, if it has one. All of them are read."""
    if changed := changed_files(folder):
        raise ValueError(
            f"{setting}: {folder}: damaged: {', '.join(changed[:3])}: not what {MANIFEST} there says; restore it, or, "
            f"if it was changed on purpose, remove {MANIFEST}"
        )


def weight_files(folder: Path, form: Form | None) -> list[str]:
    """The names of the files of weights that a folder must have."""
    if form == "adapter":
        return [_ADAPTER[1]]
    listed = (_read(folder / _INDEX) or {}).get("weight_map")
    if isinstance(listed, dict):
        return sorted(set(map(str, listed.values())))
    return sorted(file.name for file in folder.glob("*.safetensors")) or ["model.safetensors"]


def unfit(folder: Path, model: Path) -> str:
    """Why a folder's weights cannot take the place of a model's in an engine that runs; "": they can. The engine itself
    would keep the old ones where some are missing, and compute as the model's config says."""
    theirs, ours = _computed(folder), _computed(model)
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) != ours.get(key):
            return f"{folder}: {key} is {theirs.get(key)}, and {ours.get(key)} in {model}"
    return ""


def _computed(folder: Path) -> dict[str, Any]:
    """What a model computes: its config, and the shapes of its weights from the headers of its files."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(folder, trust_remote_code=False).to_dict()
    facts = {key: value for key, value in config.items() if key not in _IRRELEVANT and not key.startswith("_")}
    for file in weight_files(folder, "hf"):
        with safe_open(folder / file, "numpy") as weights:
            names = [name for name in weights.keys() if not name.endswith(".inv_freq")]  # noqa: SIM118  (of old Llamas)
            facts |= {name: weights.get_slice(name).get_shape() for name in names}
    if config.get("tie_word_embeddings"):  # it is the embedding, and may be there all the same
        facts.pop("lm_head.weight", None)
    return facts


def _whole(file: Path) -> bool:
    """Whether a safetensors file is as long as its own header says."""
    try:
        with safe_open(file, framework="numpy"):
            return True
    except (OSError, SafetensorError):
        return False


def _read(file: Path) -> dict[str, Any] | None:
    """A JSON file's mapping; None if it is not there, cut short, or holds none."""
    try:
        return read_json(file)
    except (OSError, ValueError):
        return None


def is_hub_id(path: str) -> bool:
    """Whether a model is looked for on the hub: its path is neither here, nor written as what only can be here."""
    return not path.startswith(("/", ".", "~")) and path.count("/") <= 1 and not Path(path).exists()


def local(path: str, files: Sequence[str] = ("*.json", "*.safetensors"), setting: str = "") -> Path:
    """A model's folder; of a hub's id, that of the copy in the hub's cache, which is filled if it is not there yet.

    It is a ``ValueError`` if the hub has no such model, or cannot be reached; it is asked once.
    """
    if not is_hub_id(path):
        return Path(path).expanduser()
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(path, allow_patterns=[*files]))
    except Exception as error:  # also of an address or a proxy that is none
        reason = " ".join(str(error).split())
        raise ValueError(f"{setting}{path}: is no folder here, and could not be had from the hub: {reason}") from error


def whole_path(model: Any) -> Any:
    """A model's folder as processes in other directories find it, or its hub id; verl takes no slash at the end. What
    is no text is left to the checks."""
    if not isinstance(model, str):
        return model
    folder = Path(model).expanduser()
    return str(folder.absolute()) if folder.is_dir() else model.rstrip("/")


def put(source: Path, target: Path) -> None:
    """Fill the empty folder ``target`` with what plays of a model or an adapter: links, or copies on another disk.
    It is a ``ValueError`` if ``source`` is neither, is not whole, or is damaged."""
    check_whole(source, "pool")
    check_unchanged(source, "pool")
    texts = {file.name for file in source.iterdir() if file.is_file() and file.suffix in TEXTS} - {MANIFEST}
    for name in sorted(texts | set(weight_files(source, form_of(source)))):
        link_or_copy(source / name, target / name)
