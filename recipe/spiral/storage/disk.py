"""What a full disk looks like, how much room there is, and how a file gets onto the disk for good."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

#: Also torch's: its writer loses the reason, and Ray passes on what another process's error says.
_FULL = re.compile(
    r"No space left on device|Disk quota exceeded|PytorchStreamWriter failed writing|unexpected pos \d+ vs|"
    r"iostream error|file write failed"
)

#: Why a hard link may not be possible where a copy is: another disk, a file of somebody else's, a file system without.
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


class DiskFull(Exception):
    """Something could not be written; the message says what."""


class BrokenOff(DiskFull):
    """A checkpoint could not be written to its end; of several workers, some may wait for the others now."""


def is_full(error: BaseException) -> bool:
    """Whether a full disk (or quota) is behind an error, also one that came from another process."""
    for link in _chain(error):
        if isinstance(link, DiskFull) or (isinstance(link, OSError) and link.errno in (errno.ENOSPC, errno.EDQUOT)):
            return True
        told = isinstance(link, (OSError, RuntimeError)) or hasattr(link, "cause")  # torch's, Ray's
        if told and _FULL.search(str(link)):
            return True
    return False


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was raised from or while."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


def free(path: Path) -> int:
    """Bytes that can still be written where ``path`` is, or will be."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def size(folder: Path) -> int:
    """Bytes that a folder takes on the disk."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def freed(folder: Path) -> int:
    """Bytes that there are more when a folder is removed: files that have another name elsewhere stay."""
    stats = [file.stat() for file in folder.rglob("*") if file.is_file()]
    return sum(stat.st_blocks * 512 for stat in stats if stat.st_nlink == 1)


def same_disk(one: Path, other: Path) -> bool:
    """Whether two folders, which may not be there yet, are or will be on one file system."""
    first, second = (
        next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
        for path in (one, other)
    )
    return first.stat().st_dev == second.stat().st_dev


def link_or_copy(source: Path, target: Path) -> int:
    """Give a file, or every file of a folder, a second name at ``target``; where the disk cannot, make a copy.

    A link is a hard one, to the file that a symbolic link leads to: it stays when ``source`` is removed.

    Returns:
        How many files had to be copied.

    Raises:
        OSError: neither could be done, or a file of that name is there.
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
    """Give a folder that is on the disk its name, for good."""
    new.rename(target)
    _fsync(target.parent)


def flush(folder: Path) -> None:
    """Have a folder and all in it on the disk, whichever process wrote it."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            _fsync(path)


def write_whole(file: Path, text: str | Iterable[str]) -> None:
    """Write a file so that it is there whole, or as it was before, whatever happens when.

    Args:
        file: in a folder that is there. Several processes may write it: the last one's stays.
        text: the whole, or its lines, each with its end.
    """
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("w", encoding="utf-8") as out:
            out.writelines([text] if isinstance(text, str) else text)
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
