"""A digest of each of a folder's files, kept beside them: the length of a file does not show that a bit has flipped."""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import BinaryIO

MANIFEST = "manifest.json"
#: Bytes of a zip archive's header of a part; in the last four are the lengths of its name and of what comes after it.
_HEADER = 30
WEIGHTS = "*.safetensors"
#: The endings of what a model's folder has besides: config, tokenizer, chat template.
TEXTS = (".json", ".jinja", ".txt", ".model")
#: torch's files have checksums of their parts: the digest is of all else in them, so that it need not read them whole.
_ZIP = "zip:"
_DIGEST = re.compile(rf"({_ZIP})?[0-9a-f]{{128}}")


def write_manifest(folder: Path, *files: str) -> None:
    """Write the digests of a complete folder's files into its manifest. ``files``: patterns of names; none: all."""
    found = {file for pattern in files or ("**/*",) for file in folder.glob(pattern)}
    names = sorted(file.relative_to(folder).as_posix() for file in found if file.is_file() and file.name != MANIFEST)
    write_digests(folder, names)


def write_digests(folder: Path, names: list[str]) -> None:
    """The same of the files of these names."""
    digests = dict(zip(names, _digests(folder, names), strict=True))
    (folder / MANIFEST).write_text(json.dumps(digests, indent=1) + "\n", encoding="utf-8")


def changed_files(folder: Path, ours: bool = False, only: tuple[str, ...] = ("*",)) -> list[str]:
    """The files that are not as they were when the folder's manifest was written; [] without a manifest of ours.

    All of them are read, so this is for the moment before they are loaded.

    Args:
        ours: the folder is, so that another program's manifest is damage.
        only: patterns of the names that are looked at.
    """
    if not os.path.lexists(folder / MANIFEST):
        return []
    manifest = read_manifest(folder)
    if manifest is None:
        return [MANIFEST]
    if not _is_ours(manifest):
        return [MANIFEST] if ours or any(map(_is_digest, manifest.values())) else []
    names = sorted(name for name in manifest if any(map(Path("/", name).match, only)))
    again = zip(names, _digests(folder, names, read=True), strict=True)
    return [name for name, digest in again if digest != manifest[name]]


def changed_member(folder: Path) -> list[str]:
    """The same of a model or an adapter that we wrote, with the files that were added since. Manifests of version 0.1.0
    have the weights alone."""
    known = read_manifest(folder)
    if not _is_ours(known):
        return changed_files(folder, ours=True)
    names = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()} - {MANIFEST}
    old = all(Path(name).match(WEIGHTS) for name in known or ())
    added = [name for name in names - (known or {}).keys() if not old or Path(name).match(WEIGHTS)]
    return sorted({*changed_files(folder), *added})


def read_manifest(folder: Path) -> dict[str, object] | None:
    """What a folder's manifest says; None: it cannot be read. Another program's may say anything."""
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
    return manifest if isinstance(manifest, dict) else {MANIFEST: None}


def _is_ours(manifest: object) -> bool:
    """Others call files of other contents so."""
    return isinstance(manifest, dict) and all(map(_is_digest, manifest.values()))


def _is_digest(value: object) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _digests(folder: Path, names: list[str], read: bool = False) -> list[str | None]:
    """Of files of some GiB, several at a time. ``read``: torch's are read whole, for their checksums."""
    with ThreadPoolExecutor() as threads:
        return list(threads.map(partial(_digest, read=read), [folder / name for name in names]))


def _digest(file: Path, read: bool) -> str | None:
    """None: there is no file that can be read, or its checksums do not hold."""
    try:
        if not file.is_file():  # a manifest from elsewhere may name a device
            return None
        with file.open("rb") as content:
            if file.suffix == ".pt" and zipfile.is_zipfile(content):
                return _of_zip(content) if not read or checksums_hold(file) else None
            content.seek(0)
            return hashlib.file_digest(content, "blake2b").hexdigest()
    except Exception:  # a damaged archive may raise anything
        return None


def _of_zip(content: BinaryIO) -> str:
    """A digest of an archive's headers, and of its directory with the checksums of its parts."""
    digest = hashlib.blake2b()
    with zipfile.ZipFile(content) as archive:
        for part in archive.infolist():
            content.seek(part.header_offset)
            header = content.read(_HEADER)
            digest.update(header + content.read(sum(struct.unpack("<HH", header[-4:]))))
        content.seek(archive.start_dir)
        digest.update(content.read())
    return f"{_ZIP}{digest.hexdigest()}"


def checksums_hold(file: Path) -> bool:
    """Whether the checksums that torch's archive keeps of its parts hold."""
    try:
        with zipfile.ZipFile(file) as archive:
            return archive.testzip() is None
    except Exception:  # a damaged archive may ask for anything: a password, an unknown compression, the end of the file
        return False
