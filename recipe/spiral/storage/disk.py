"""Writing to the disk so that nothing is half there, and recognising a disk that is full."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

#: Messages of errors that lost their errno: torch's writer drops it, and Ray passes on only the text of an error.
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing|unexpected pos \d+ vs|"
    r"iostream error|file write failed"
)
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


class DiskFull(Exception):
    """Something could not be written; the message says what."""


class BrokenOff(DiskFull):
    """A checkpoint was not written to its end. With several workers, some may now wait for the others for ever."""


def is_full(error: BaseException) -> bool:
    """Whether a full disk (or quota) caused an error, here or in another process."""
    for link in _chain(error):
        if isinstance(link, DiskFull) or (isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT)):
            return True
        by_text = isinstance(link, (OSError, RuntimeError)) or hasattr(link, "cause")  # torch's, Ray's
        if by_text and _FULL.search(str(link)):
            return True
    return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, then its cause or context, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises OSError: it cannot be read; ValueError: it is damaged, or holds no mapping."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:  # RecursionError: a hundred thousand brackets
        raise ValueError(f"{file}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: holds no mapping")
    return content


def free(path: Path) -> int:
    """Free bytes on the disk of ``path``, which need not exist yet."""
    return shutil.disk_usage(existing(path)).free


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


def size(folder: Path) -> int:
    """Bytes that a folder takes on the disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def freed(folder: Path) -> int:
    """Bytes that removing a folder would free; a file that has another hard link frees nothing."""
    stats = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(stat.st_blocks * 512 for stat in stats if stat.st_nlink == 1)


def link_or_copy(source: Path, target: Path) -> int:
    """Hard-link a file, or every file of a folder, to ``target``; where the disk cannot link, copy. Returns how many
    files had to be copied.

    Symbolic links are followed, so ``target`` stays when ``source`` is removed. Those in a folder that lead to a folder
    are left out: it may be the same one, without end. A file that is there raises OSError.
    """
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        inside = [path for path in sorted(source.iterdir()) if not (path.is_symlink() and path.is_dir())]
        return sum(link_or_copy(path, target / path.name) for path in inside)
    try:
        os.link(source.resolve(), target)
        return 0
    except OSError:  # another disk, another owner, no links on this system; or what a copy fails by as well
        with target.open("xb") as out, source.open("rb") as original:
            shutil.copyfileobj(original, out)
        shutil.copystat(source, target)
        return 1


def put_in_place(new: Path, target: Path) -> None:
    """Rename a folder, and wait until the new name is on the disk."""
    new.rename(target)
    _fsync(target.parent)


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
    """Appends lines. On a full disk they are kept and written with the next one; whoever writes goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unsaid: list[str] = []

    def append(self, line: str) -> None:
        """Append a line, whole or not at all, after what an earlier process may have left half-written."""
        self._unsaid.append(line)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a+b", buffering=0) as file:
                while self._unsaid:
                    end = file.seek(0, os.SEEK_END)
                    text = f"{self._unsaid[0]}\n".encode()
                    if end and os.pread(file.fileno(), 1, end - 1) != b"\n":
                        text = b"\n" + text
                    if (file.write(text) or 0) < len(text):  # as much as there was room for
                        file.truncate(end)
                        break
                    del self._unsaid[0]
        except OSError as error:
            if not is_full(error):
                raise


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
