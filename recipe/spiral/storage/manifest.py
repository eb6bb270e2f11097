"""A digest of each of a folder's files, kept beside them: the length of a file does not show that a bit has flipped."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MANIFEST = "manifest.json"
WEIGHTS = "*.safetensors"
#: The endings of what a model's folder has besides: config, tokenizer, chat template.
TEXTS = (".json", ".jinja", ".txt", ".model")
_DIGEST = re.compile(r"[0-9a-f]{128}")


def write_manifest(folder: Path, files: str = "**/*") -> None:
    """Write the digest of each file of a complete folder into its manifest.

    Args:
        folder: where the files are.
        files: a pattern of their names.
    """
    names = sorted(
        file.relative_to(folder).as_posix() for file in folder.glob(files) if file.is_file() and file.name != MANIFEST
    )
    digests = dict(zip(names, _digests(folder, names), strict=True))
    (folder / MANIFEST).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


def changed_files(folder: Path) -> list[str]:
    """The files that are not as they were when the folder's manifest was written; [] without a manifest of ours.

    All of them are read, so this is for the moment before they are loaded.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError):
        return [MANIFEST]
    if not _is_ours(manifest):
        return []
    names = sorted(manifest)
    return [name for name, digest in zip(names, _digests(folder, names), strict=True) if digest != manifest[name]]


def is_intact(folder: Path) -> bool:
    """Whether the folder has a manifest, and every file in it is as it was written."""
    try:
        ours = _is_ours(json.loads((folder / MANIFEST).read_bytes()))
    except (OSError, ValueError, RecursionError):
        return False
    return ours and not changed_files(folder)


def _is_ours(manifest: object) -> bool:
    """Others call files of other contents so."""
    return isinstance(manifest, dict) and all(
        isinstance(digest, str) and _DIGEST.fullmatch(digest) for digest in manifest.values()
    )


def _digests(folder: Path, names: list[str]) -> list[str | None]:
    """Of files of some GiB, several at a time."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(lambda name: _digest(folder / name), names))


def _digest(file: Path) -> str | None:
    """None: there is no file that can be read."""
    try:
        if not file.is_file():  # a manifest from elsewhere may name a device
            return None
        with file.open("rb") as content:
            return hashlib.file_digest(content, "blake2b").hexdigest()
    except OSError:
        return None
