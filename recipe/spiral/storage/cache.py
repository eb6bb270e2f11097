"""Where what is made once is kept."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path


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
