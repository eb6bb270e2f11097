"""Models that are made once and used again, by one process at a time. A damaged one is made again."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock, Timeout

from ...storage.disk import check_locks, whole_folder
from ...storage.manifest import MANIFEST, changed_files, write_manifest

logger = logging.getLogger(__name__)


def is_intact(folder: Path) -> bool:
    """Whether the folder has a manifest, and every file in it is as it was written."""
    return (folder / MANIFEST).is_file() and not changed_files(folder)


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
            write_manifest(new)
    finally:
        lock.release()
    return folder
