"""Writing to the disk so that nothing is half there, and recognising a disk that is full."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Messages of errors that lost their errno: torch's writer drops it, and Ray passes on only the text of an error.
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing|unexpected pos \d+ vs|"
    r"iostream error|file write failed"
)

#: Errors of a hard link after which a copy may still succeed: another disk, another owner, no links on this system.
_NO_LINK = {
    errno.EXDEV,
    errno.EPERM,
    errno.EACCES,
    errno.EMLINK,
    errno.ENOSYS,
    errno.ENOTSUP,
    errno.EOPNOTSUPP,
    errno.EINVAL,
}


class InUse(RuntimeError):
    """Another process is at work in a folder, or writes to a file."""


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


def free(path: Path) -> int:
    """Free bytes on the disk of ``path``, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def size(folder: Path) -> int:
    """Bytes that a folder takes on the disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def freed(folder: Path) -> int:
    """Bytes that removing a folder would free; a file that has another hard link frees nothing."""
    stats = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(stat.st_blocks * 512 for stat in stats if stat.st_nlink == 1)


def same_disk(first: Path, second: Path) -> bool:
    """Whether two folders, which need not exist yet, are on the same file system."""
    devices = [
        next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists()).stat().st_dev
        for path in (first, second)
    ]
    return devices[0] == devices[1]


def link_or_copy(source: Path, target: Path) -> int:
    """Hard-link a file, or every file of a folder, to ``target``; where the disk cannot link, copy.

    Symbolic links are followed, so ``target`` stays when ``source`` is removed.

    Returns:
        How many files had to be copied.

    Raises:
        OSError: neither succeeded, or ``target`` exists.
    """
    if not source.is_dir():
        return _link_or_copy_file(source, target)
    target.mkdir(parents=True, exist_ok=True)
    return sum(link_or_copy(path, target / path.name) for path in sorted(source.iterdir()))


def _link_or_copy_file(source: Path, target: Path) -> int:
    try:
        os.link(source.resolve(), target)
        return 0
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
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


def write_whole(file: Path, content: str | Iterable[str] | Iterable[bytes]) -> None:
    """Write a file atomically: after a crash it has either the old or the new content.

    Args:
        file: in a folder that exists. If several processes write it, the last one wins.
        content: a text, or parts of one, or of bytes.
    """
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as out:
            for part in [content] if isinstance(content, str) else content:
                out.write(part.encode() if isinstance(part, str) else part)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    _fsync(file.parent)


def gigabytes(count: float) -> str:
    return f"{count / 1e9:.3g} GB"


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
