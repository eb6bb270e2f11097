"""A folder's manifest: the size and the SHA-256 of each of its files, which show what is missing, cut short or changed.

torch and safetensors load a flipped bit without a word.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import msgspec

MANIFEST = "manifest.json"
#: The endings of what a model's folder has besides weights: config, tokenizer, chat template.
TEXTS = (".json", ".jinja", ".txt", ".model")

#: By a file's name in the folder.
Entries = Mapping[str, tuple[int, str]]


def write_manifest(folder: Path, known: Entries = MappingProxyType({})) -> None:
    """Write the manifest of a complete folder. ``known``: entries of files that need not be read; hidden files have
    none."""
    files = [file.relative_to(folder) for file in folder.rglob("*") if file.is_file()]
    shown = {file.as_posix() for file in files if not any(part[0] == "." for part in file.parts)} - {MANIFEST}
    unread = sorted(shown - known.keys())
    with ThreadPoolExecutor() as threads:  # of files of some GiB, several at a time
        read = dict(zip(unread, threads.map(_entry, [folder / name for name in unread]), strict=True))
    entries = {name: read.get(name) or known[name] for name in sorted(shown)}
    (folder / MANIFEST).write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> Entries | None:
    """A folder's manifest; empty: it has none, or one of another form, as other programs write; None: it is damaged."""
    try:
        return msgspec.convert(json.loads((folder / MANIFEST).read_bytes()), dict[str, tuple[int, str]])
    except (FileNotFoundError, msgspec.ValidationError):
        return {}
    except (ValueError, RecursionError):
        return None


def changed_files(folder: Path, parts: tuple[str, ...] = ("",)) -> list[str]:
    """The files that are missing, or are not as they were when the folder's manifest was written; [] without one.

    All of them are read, so this is for the moment before they are loaded. ``parts``: how the names begin of those that
    are looked at.
    """
    if (manifest := read_manifest(folder)) is None:
        return [MANIFEST]
    entries = sorted(item for item in manifest.items() if item[0].startswith(parts))
    with ThreadPoolExecutor() as threads:
        same = threads.map(lambda item: _is_as(folder / item[0], *item[1]), entries)
        return [name for (name, _), good in zip(entries, same, strict=True) if not good]


def _is_as(file: Path, size: int, digest: str) -> bool:
    try:  # the size first: a manifest from elsewhere may name a device
        return file.is_file() and file.stat().st_size == size and _entry(file)[1] == digest
    except OSError:
        return False


def _entry(file: Path) -> tuple[int, str]:
    with file.open("rb") as content:
        return file.stat().st_size, hashlib.file_digest(content, "sha256").hexdigest()
