"""The folder to make: what may be written there, and that it comes whole or not at all."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from .errors import ExportError


def check_target(target: Path, checkpoint: Path, force: bool) -> None:
    """Raises ExportError if ``target`` may not be written."""
    if target.is_relative_to(checkpoint) or checkpoint.is_relative_to(target):
        raise ExportError(f"{target}: must neither hold the checkpoint nor lie in it")
    if target.exists() and not target.is_dir():
        raise ExportError(f"{target}: is a file")
    if not force and target.is_dir() and any(target.iterdir()):
        raise ExportError(f"{target}: is not empty; name another folder, or replace it with --force")


def put(target: Path, build: Callable[[Path], str], force: bool) -> str:
    """Have ``build`` fill a folder beside ``target`` and move it there when it is complete; returns what it returns.

    Raises:
        Exception: whatever ``build`` raises; then ``target`` is as it was.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        new, old = unfinished / "new", unfinished / "old"
        new.mkdir()
        result = build(new)
        for file in new.rglob("*"):
            file.chmod(file.stat().st_mode | (new.stat().st_mode & 0o444))  # safetensors writes for the owner alone
        if target.exists():
            if not force:
                target.rmdir()  # fails if something was put there meanwhile
            else:
                target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return result
