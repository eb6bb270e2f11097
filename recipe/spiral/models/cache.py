"""Folders that are built once and used again.

A folder is built beside its place and moved there when it is complete. A lock keeps two processes from building the
same one. Its manifest shows whether a folder is damaged; then it is built again.
"""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from ..storage.manifest import is_intact, write_manifest

logger = logging.getLogger(__name__)


def cache_dir(cache: str | Path | None = None) -> Path:
    """Where made models are kept: ``cache``, or $SPIRAL_CACHE, or verl-spiral in $XDG_CACHE_HOME or ~/.cache."""
    if cache is not None:
        return Path(cache).expanduser()
    if own := os.environ.get("SPIRAL_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "verl-spiral"


def private_folder(folder: Path) -> Path:
    """Make a folder that nobody else can write to, or take the one that is there.

    Raises:
        PermissionError: another user made it, or it is a link: what lies in it cannot be trusted.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise PermissionError(f"{folder}: is not a folder of yours; remove it, or set SPIRAL_CACHE to another place")
    if state.st_mode & 0o022:  # others could write to it: begin anew
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    return folder


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
            _readable_by_all(new)
            write_manifest(new)
            if folder.exists():
                folder.rename(Path(unfinished, "old"))
            new.rename(folder)
    return folder


def _readable_by_all(folder: Path) -> None:
    """Give each file the permissions of a new one: some are written for their owner only."""
    umask = os.umask(0)
    os.umask(umask)
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(0o666 & ~umask)
