"""Folders that are made once and found again: whole or not at all, whatever else runs or breaks.

A folder is built beside its place and moved there when it is complete. A lock keeps two processes from building the
same one, and a list of its files with their hashes tells a broken one, which is built again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"


def cache_dir(cache: str | Path | None = None) -> Path:
    """Where made models are kept: ``cache``, or $SPIRAL_CACHE, or verl-spiral in $XDG_CACHE_HOME or ~/.cache."""
    if cache is not None:
        return Path(cache).expanduser()
    if own := os.environ.get("SPIRAL_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "verl-spiral"


def provide(folder: Path, build: Callable[[Path], None], force: bool = False) -> Path:
    """``folder``, built if it is missing or broken.

    Args:
        folder: where it is to be.
        build: fills the empty folder that it is given.
        force: build it even if it is there.

    Raises:
        Exception: whatever ``build`` raises; then nothing is left behind, and what was there before is as it was.
    """
    if not force and is_intact(folder):
        return folder
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        logger.warning("waiting for another process that is making %s", folder)
        lock.acquire()
    try:
        if not force and is_intact(folder):
            return folder
        if folder.exists() and not force:
            logger.warning("%s is broken: making it again", folder)
        for leftover in folder.parent.glob(f".{folder.name}.*"):  # of a process that was killed: the lock is ours
            shutil.rmtree(leftover, ignore_errors=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            new = unfinished / "new"
            new.mkdir()
            build(new)
            seal(new)
            if folder.exists():
                folder.rename(unfinished / "old")
            new.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    finally:
        lock.release()
    return folder


def seal(folder: Path) -> None:
    """Write down what a complete folder holds."""
    umask = os.umask(0)
    os.umask(umask)
    for file in _files(folder):
        file.chmod(0o666 & ~umask)  # some are written for their owner only
    files = {file.relative_to(folder).as_posix(): _digest(file) for file in _files(folder)}
    (folder / MANIFEST).write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


def is_intact(folder: Path) -> bool:
    """Whether the folder is there and every file in it is as it was written."""
    try:
        files: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return all(_digest(folder / name) == digest for name, digest in files.items())
    except (OSError, ValueError, AttributeError):
        return False


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()
