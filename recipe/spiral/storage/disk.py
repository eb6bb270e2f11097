"""Writing to the disk so that nothing is half there, and by one process at a time in a folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

#: In a folder: the lock, with the number of the process that has it.
LOCK = "in_use.lock"


class InUse(RuntimeError):
    """Another process is at work in a folder, or writes to a file."""


@contextmanager
def only_one(folder: Path, setting: str = "run_dir") -> Iterator[None]:
    """Make a folder, which ``setting`` names, and keep a second process out of it. The system frees the lock however
    this one ends.

    Not ``filelock``: forked processes inherit its locks and may outlive a killed run, and it cannot look at a lock in a
    folder that is not writable. On a disk without locks only the user can see to it.

    Raises:
        InUse: another process holds it.
        OSError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        opened = (folder / LOCK).open("a+")
    except OSError as error:
        raise OSError(f"{setting}={folder}: cannot be written: {error.strerror}") from error
    with opened as lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            raise InUse(
                f"{setting}={folder}: process {lock.read().strip()} is at work there; wait for it, end it, or give "
                f"another {setting}"
            ) from None
        except OSError as error:
            warnings.warn(f"{folder}: files cannot be locked there ({error}); start nothing twice", stacklevel=3)
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield


def is_in_use(folder: Path) -> bool:
    """Whether a process is at work in a folder, which need not be writable. False where that cannot be known."""
    try:
        with (folder / LOCK).open("rb") as lock:
            fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        pass
    return False


def read_json(file: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises OSError: it cannot be read; ValueError: it is damaged, or holds no mapping."""
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:  # RecursionError: a hundred thousand brackets
        raise ValueError(f"{file}: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{file}: holds no mapping")
    return content


def link_or_copy(source: Path | str, target: Path | str) -> None:
    """Hard-link a file, or every file of a folder, to ``target``; where the disk cannot link, copy.

    Symbolic links are followed, so ``target`` stays when ``source`` is removed. A file that is there raises OSError.
    """
    if Path(source).is_dir():
        shutil.copytree(source, target, copy_function=link_or_copy, dirs_exist_ok=True)
        return
    try:
        os.link(Path(source).resolve(), target)
    except OSError:  # another disk, another owner, no links on this system; or what a copy fails by as well
        with open(target, "xb") as out, open(source, "rb") as original:
            shutil.copyfileobj(original, out)


@contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """The block fills the empty folder that it is given, which has the name of ``folder`` and then takes its place. If
    the block fails, ``folder`` is as it was. A kill leaves a hidden folder beside it, ``.<name>.<letters>``."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent, ignore_cleanup_errors=True)
    with beside as unfinished:
        new = Path(unfinished, folder.name)
        new.mkdir()
        yield new
        readable = new.stat().st_mode & 0o444
        for file in new.rglob("*"):
            file.chmod(file.stat().st_mode | readable)  # safetensors lets only the owner read
        if folder.exists():
            folder.rename(Path(unfinished, f"{folder.name}.old"))
        new.rename(folder)


def discard(folder: Path, say: Callable[[str], None]) -> None:
    """Remove a folder, which first gets a hidden name beside it, so that it is never half there under its own. What the
    disk does not let go of, as open files on NFS, is said, and stays."""
    gone = folder
    with suppress(OSError):
        if not folder.name.startswith("."):
            gone = folder.rename(folder.with_name(f".{folder.name}.{uuid4().hex[:8]}"))
        shutil.rmtree(gone, ignore_errors=True)
    if gone.exists():
        say(f"{gone}: could not be removed (something there is in use); remove it later")


def flush(folder: Path) -> None:
    """Wait until a folder and everything in it is on the disk, whichever process wrote it."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_file() or path.is_dir():
            _fsync(path)


def write_whole(file: Path, content: str | Iterable[bytes], durable: bool = True) -> None:
    """Write a file, in a folder that exists, atomically: after a crash it has either the old or the new content. If
    several processes write it, the last one wins. Without ``durable`` a crash of the machine may leave neither."""
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    try:
        with unfinished.open("wb") as out:
            out.writelines([content.encode()] if isinstance(content, str) else content)
            out.flush()
            if durable:
                os.fsync(out.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)
    if durable:
        _fsync(file.parent)


def append_line(file: Path, line: str) -> None:
    """Append a line in one write, after what an earlier process may have left half-written."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+b", buffering=0) as out:
        end = out.seek(0, os.SEEK_END)
        torn = end > 0 and os.pread(out.fileno(), 1, end - 1) != b"\n"
        out.write(b"\n" * torn + f"{line}\n".encode())


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
