"""Writing to the disk so that nothing is half there."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: The environment variable by which a user takes a folder in which files cannot be locked.
WITHOUT_LOCKS = "SPIRAL_WITHOUT_LOCKS"


class InUse(RuntimeError):
    """Another process is at work in a folder, or writes to a file; or nobody can know, as there are no locks."""


def check_locks(place: str, error: Exception) -> None:
    """Raise InUse for an error of a lock, which is not that somebody has it, unless the user takes a disk without
    locks. An error of opening its file is raised as it is."""
    if getattr(error, "filename", None):
        raise error
    if not os.environ.get(WITHOUT_LOCKS):
        raise InUse(
            f"{place}: files cannot be locked there ({getattr(error, 'strerror', None) or error}), so that two starts "
            "could write there at once; give a place on a disk with locks (Lustre: mounted with flock), or set "
            f"{WITHOUT_LOCKS}=1 and start nothing twice"
        ) from error


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises OSError: it cannot be read; ValueError: it is damaged, or holds no mapping."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:  # RecursionError: a hundred thousand brackets
        raise ValueError(f"{file}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: holds no mapping")
    return content


def existing(path: Path) -> Path:
    """The nearest folder above a path that is there, or the path itself."""
    return next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())


def unwritable(folder: Path, here: bool = True) -> str:
    """Why nothing can be written into a folder, which need not exist yet; "": it can. Whether it may be written to is
    another matter on another machine (``here``)."""
    place = existing(folder)
    if not place.is_dir():
        return f"{place} is no folder"
    if not here:
        return ""
    return "" if os.access(place, os.W_OK | os.X_OK) else f"{place} cannot be written to"


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or every file of a folder, to ``target``; where the disk cannot link, copy.

    Symbolic links are followed, so ``target`` stays when ``source`` is removed. Those in a folder that lead to a folder
    are left out: it may be the same one, without end. A file that is there raises OSError.
    """
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for path in sorted(source.iterdir()):
            if not (path.is_symlink() and path.is_dir()):
                link_or_copy(path, target / path.name)
        return
    try:
        os.link(source.resolve(), target)
    except OSError:  # another disk, another owner, no links on this system; or what a copy fails by as well
        with target.open("xb") as out, source.open("rb") as original:
            shutil.copyfileobj(original, out)
        shutil.copystat(source, target)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """The block fills the empty folder that it is given, which then becomes ``folder``. If the block fails, ``folder``
    is as it was."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True)
    with beside as unfinished:
        new, old = Path(unfinished, "new"), Path(unfinished, "old")
        new.mkdir()
        yield new
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


def flush(folder: Path) -> None:
    """Wait until a folder and everything in it is on the disk, whichever process wrote it."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            _fsync(path)


def write_whole(file: Path, content: str | Iterable[str] | Iterable[bytes], durable: bool = True) -> None:
    """Write a file, in a folder that exists, atomically: after a crash it has either the old or the new content. If
    several processes write it, the last one wins. Without ``durable`` a crash of the machine may leave neither."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with naming(file), unfinished.open("wb") as out:
            for part in [content] if isinstance(content, str) else content:
                out.write(part.encode() if isinstance(part, str) else part)
            out.flush()
            if durable:
                os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    if durable:
        _fsync(file.parent)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """The block writes a file; an error says which one."""
    try:
        yield
    except OSError as error:
        error.filename = str(file)
        raise


class LineFile:
    """Appends lines, each in one write, after what an earlier process may have left half-written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, line: str) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with naming(self.path), self.path.open("a+b", buffering=0) as file:
            end = file.seek(0, os.SEEK_END)
            torn = end and os.pread(file.fileno(), 1, end - 1) != b"\n"
            file.write(f"{chr(10) * bool(torn)}{line}\n".encode())


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
