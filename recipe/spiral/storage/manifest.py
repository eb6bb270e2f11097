"""A digest of each of a folder's files, kept beside them: the length of a file does not show that a bit has flipped."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

MANIFEST = "manifest.json"
WEIGHTS = "*.safetensors"
#: The endings of what a model's folder has besides: config, tokenizer, chat template.
TEXTS = (".json", ".jinja", ".txt", ".model")
_DIGEST = re.compile(r"[0-9a-f]{128}")


def write_manifest(folder: Path, files: str = "**/*") -> None:
    """Write the digest of each file of a complete folder into its manifest. ``files`` is a pattern of their names."""
    names = sorted(
        file.relative_to(folder).as_posix() for file in folder.glob(files) if file.is_file() and file.name != MANIFEST
    )
    digests = dict(zip(names, _digests(folder, names), strict=True))
    (folder / MANIFEST).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


@contextmanager
def whole_folder(folder: Path, files: str = "**/*") -> Iterator[Path]:
    """The block fills the empty folder that it is given, which then becomes ``folder``, with a manifest of ``files``.
    If the block fails, ``folder`` is as it was."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
    ) as unfinished:
        new, old = Path(unfinished, "new"), Path(unfinished, "old")
        new.mkdir()
        yield new
        write_manifest(new, files)
        readable = new.stat().st_mode & 0o444
        for file in new.rglob("*"):
            file.chmod(file.stat().st_mode | readable)  # safetensors lets only the owner read
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise


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
