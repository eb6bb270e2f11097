"""Folders that are built once and used again.

A folder is built beside its place and moved there when it is complete. A lock keeps two processes from building the
same one. A manifest with a hash of each file shows whether a folder is damaged; then it is built again.
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
    """Build ``folder`` if it is missing or damaged, and return it.

    Args:
        folder: its place.
        build: fills the empty folder that it is given.
        force: build it even if it is there.

    Raises:
        Exception: whatever ``build`` raises. Then nothing is left behind, and a folder of before is as it was.
    """
    if not force and is_intact(folder):
        return folder
    from filelock import FileLock, Timeout

    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        locked = lock.acquire(timeout=1)
    except Timeout:
        logger.warning("waiting for another process that is making %s", folder)
        locked = lock.acquire()
    with locked:
        if not force and is_intact(folder):
            return folder
        if folder.exists() and not force:
            logger.warning("%s is damaged: making it again", folder)
        for leftover in folder.parent.glob(f".{folder.name}.*"):  # of a process that was killed: the lock is ours
            shutil.rmtree(leftover, ignore_errors=True)
        with tempfile.TemporaryDirectory(
            prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
        ) as unfinished:
            new = Path(unfinished, "new")
            new.mkdir()
            build(new)
            write_manifest(new)
            if folder.exists():
                folder.rename(Path(unfinished, "old"))
            new.rename(folder)
    return folder


def write_manifest(folder: Path) -> None:
    """Write the hash of each file of a complete folder into its manifest."""
    umask = os.umask(0)
    os.umask(umask)
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != MANIFEST)
    for file in files:
        file.chmod(0o666 & ~umask)  # some are written for their owner only
    hashes = {file.relative_to(folder).as_posix(): _hash(file) for file in files}
    (folder / MANIFEST).write_text(json.dumps(hashes, indent=1) + "\n", encoding="utf-8")


def is_intact(folder: Path) -> bool:
    """Whether the folder is there and every file in its manifest is as it was written."""
    try:
        hashes: dict[str, str] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        return all(_hash(folder / name) == expected for name, expected in hashes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _hash(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "blake2b").hexdigest()
