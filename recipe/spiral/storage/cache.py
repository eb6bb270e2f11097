"""Folders that are built whole; and those that are built once and used again, by one process at a time. A damaged one
is built again."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from .disk import check_locks
from .manifest import MANIFEST, changed_files, write_manifest

logger = logging.getLogger(__name__)


def cache_dir(cache: str | Path | None = None) -> Path:
    """Where made models are kept: ``cache``, or $SPIRAL_CACHE, or verl-spiral in $XDG_CACHE_HOME or ~/.cache."""
    if cache is not None:
        return Path(cache).expanduser()
    if own := os.environ.get("SPIRAL_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").expanduser() / "verl-spiral"


def private_folder(folder: Path) -> Path:
    """Make a folder that nobody else can write to, or take the one that is there. Raises PermissionError: another user
    made it, or it is a link: what lies in it cannot be trusted."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(
            f"{folder}: cannot be made ({error.strerror}); set SPIRAL_CACHE to another place"
        ) from error
    state = folder.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise PermissionError(f"{folder}: is not a folder of yours; remove it, or set SPIRAL_CACHE to another place")
    if state.st_mode & 0o022:  # others could write to it: begin anew
        shutil.rmtree(folder)
        folder.mkdir(mode=0o700)
    return folder


def is_intact(folder: Path) -> bool:
    """Whether the folder has a manifest, and every file in it is as it was written."""
    return (folder / MANIFEST).is_file() and not changed_files(folder, ours=True)


@contextmanager
def whole_folder(folder: Path, *files: str) -> Iterator[Path]:
    """The block fills the empty folder that it is given, which then becomes ``folder``, with a manifest of ``files``.
    If the block fails, ``folder`` is as it was."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(
        prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True
    ) as unfinished:
        new, old = Path(unfinished, "new"), Path(unfinished, "old")
        new.mkdir()
        yield new
        write_manifest(new, *files)
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


def provide(folder: Path, build: Callable[[Path], None], force: bool = False) -> Path:
    """Let ``build`` fill ``folder`` if it is missing or damaged, or with ``force``, and return it.

    If ``build`` raises, nothing is left behind, and a folder of before is as it was.
    """
    if not force and is_intact(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder.with_name(f"{folder.name}.lock"))
    try:
        lock.acquire(timeout=1)
    except Timeout:
        logger.warning("waiting for another process that is making %s", folder)
        lock.acquire()
    except OSError as error:
        check_locks(f"SPIRAL_CACHE={folder.parent}", error)
    try:
        if not force and is_intact(folder):
            return folder
        if folder.exists() and not force:
            logger.warning("%s is damaged: making it again", folder)
        for leftover in folder.parent.glob(f".{folder.name}.*"):  # of a process that was killed: the lock is ours
            shutil.rmtree(leftover, ignore_errors=True)
        with whole_folder(folder) as new:
            build(new)
    finally:
        lock.release()
    return folder
