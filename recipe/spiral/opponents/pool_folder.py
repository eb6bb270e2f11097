"""The pool's members on the disk: a run's ``pool/``, its part of a checkpoint, and pools from other runs.

::

    folder = PoolFolder(run_dir / "pool")
    folder.clear()                                    # at a start: what a kill left unfinished
    with folder.writing(name) as place:               # whole, or not there
        ...                                           # write a Hugging Face folder or a PEFT adapter into place
    folder.path(name)                                 # where the engine reads it
    missing = folder.save_into(checkpoint, names)     # inside CheckpointFolder.saving: global_step_N/pool/<name>/
    folder.remove(name)                               # of who left; checkpoints keep what is theirs
    missing = folder.restore_from(checkpoint, names)  # at a resume: exactly these; (None, []) at a fresh start
    disk_bound(member_bytes, size, checkpoints_kept)  # the most that all this can take; disk_line says it to people
    for step, path, form in members_of(path): ...     # a pool from elsewhere
        with folder.writing(name) as place:
            materialise(path, place)

A member is a folder of its own, and its files are never changed. A checkpoint holds them by hard links: they take no
room twice, and stay for as long as the pool or any checkpoint has them. The folder must be seen by the trainer and by
every worker, like that of the checkpoints; on the same disk as these, or members are copied. What concerns pools from
elsewhere is in ``pool_sources``.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..storage.checkpoints import COPIED, POOL
from ..storage.disk import DiskFull, flush, gigabytes, is_full, link_or_copy, put_in_place
from .pool_sources import Form, form_of, materialise, members_of, missing_files

__all__ = [
    "Form",
    "PoolFolder",
    "disk_bound",
    "disk_line",
    "form_of",
    "link_or_copy",
    "materialise",
    "members_of",
    "missing_files",
]

_UNFINISHED = "unfinished-"


class PoolFolder:
    """A run's ``pool/``: one folder a member, which is whole or not there."""

    def __init__(self, path: Path) -> None:
        self.folder = Path(path)

    @property
    def names(self) -> list[str]:
        """Whose folders are there, sorted."""
        if not self.folder.is_dir():
            return []
        hidden = (_UNFINISHED, ".")
        return sorted(sub.name for sub in self.folder.iterdir() if sub.is_dir() and not sub.name.startswith(hidden))

    def path(self, name: str) -> Path:
        """Where a member's files are, or will be.

        Raises:
            ValueError: no folder can have that name here.
        """
        if not name or Path(name).name != name or name.startswith((_UNFINISHED, ".")):
            raise ValueError(f"{name!r} cannot be a member's name: it names a folder")
        return self.folder / name

    def clear(self) -> None:
        """Remove what a kill left unfinished."""
        for pattern in (f"{_UNFINISHED}*", f".{_UNFINISHED}*"):  # hidden: those of an export, and of who is removed
            for left in self.folder.glob(pattern):
                shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The block fills the folder that it is given; then it is the member's, on the disk, in place of an older one.

        Raises:
            ValueError: what the block wrote is no whole member; nothing has changed.
            DiskFull: it does not fit; nothing has changed.
            Exception: whatever the block raises; nothing has changed.
        """
        final, place = self.path(name), self.folder / f"{_UNFINISHED}{name}"
        shutil.rmtree(place, ignore_errors=True)
        try:
            place.mkdir(parents=True)
            yield place
            if missing := missing_files(place):
                raise ValueError(f"member {name} of the pool is not whole: missing or cut short: {', '.join(missing)}")
            flush(place)
            self.remove(name)
            put_in_place(place, final)
        except Exception as error:
            if is_full(error):
                raise DiskFull(
                    f"the disk is full: member {name} of the pool could not be written to {self.folder}"
                ) from error
            raise
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def remove(self, name: str) -> None:
        """Take a member's files away, if there are any, at once; a checkpoint's stay."""
        gone = self.folder / f".{_UNFINISHED}{name}"
        shutil.rmtree(gone, ignore_errors=True)
        try:
            self.path(name).rename(gone)  # never half there under its own name
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def save_into(self, checkpoint: Path, names: Iterable[str]) -> list[str]:
        """Put members into a checkpoint's folder that is being written, as ``pool/<name>/``.

        Returns:
            Those whose files are not there, or not whole: they are not in the checkpoint.
        """
        missing = []
        (checkpoint / POOL).mkdir(parents=True, exist_ok=True)
        for name in names:
            if missing_files(self.path(name)):
                missing.append(name)
            elif link_or_copy(self.path(name), checkpoint / POOL / name):
                (checkpoint / POOL / COPIED).touch()
        return missing

    def restore_from(self, checkpoint: Path | None, names: Iterable[str]) -> list[str]:
        """Have exactly these members, as the checkpoint has them, and no others: those were added after it.

        A member that is here, but not in the checkpoint's folder, stays as it is.

        Args:
            checkpoint: ``global_step_N``; None at a fresh start.
            names: who was in the pool then.

        Returns:
            Those whose files are neither in the checkpoint nor here, or not whole: they are to be left out.

        Raises:
            DiskFull: the members have to be copied back, and do not fit.
        """
        self.clear()
        wanted, missing = list(names), []
        for name in wanted:
            ours = self.path(name)
            theirs = checkpoint / POOL / name if checkpoint is not None else None
            if theirs is not None and not missing_files(theirs):
                if not _same(theirs, ours):
                    with self.writing(name) as place:
                        link_or_copy(theirs, place)
            elif missing_files(ours):
                missing.append(name)
        for name in self.names:
            if name not in wanted or name in missing:
                self.remove(name)
        return missing


def _same(one: Path, other: Path) -> bool:
    """Whether two folders hold the same files: links to them, or copies, which have their length and time."""
    files = [{file.relative_to(folder) for file in folder.rglob("*") if file.is_file()} for folder in (one, other)]
    if files[0] != files[1]:
        return False
    for file in files[0]:
        a, b = (one / file).stat(), (other / file).stat()
        if not os.path.samestat(a, b) and (a.st_size, a.st_mtime_ns) != (b.st_size, b.st_mtime_ns):
            return False
    return True


# -- how much room it takes --------------------------------------------------------------------------------------------


def disk_bound(
    member_bytes: int,
    size: int,
    checkpoints_kept: int | None,
    leaving: int | None = None,
    made: int | None = None,
) -> int:
    """Bytes that a pool takes at most, with the members that have left it and are held by checkpoints.

    Args:
        member_bytes: what a member takes.
        size: of the pool.
        checkpoints_kept: how many checkpoints stay, with one that the run was told to go on from; None or 0: all.
        leaving: how many members leave at most from one checkpoint to the next, which is save_freq / update_interval,
            rounded up; None: all that a checkpoint holds may have left when the next is written.
        made: how many members a run has at most from its start to its end; None: no end is known.

    Raises:
        ValueError: all checkpoints stay, and no end is known.
    """
    return member_bytes * sum(_counts(size, checkpoints_kept, leaving, made))


def disk_line(
    member_bytes: int,
    size: int,
    checkpoints_kept: int | None,
    leaving: int | None = None,
    made: int | None = None,
) -> str:
    """``disk_bound`` as a line for people."""
    inside, held = _counts(size, checkpoints_kept, leaving, made)
    most = gigabytes(member_bytes * (inside + held))
    also = f", and {held} that have left it and are held by checkpoints" if held else ""
    members = f"{inside} members of {gigabytes(member_bytes)}, one of them being written"
    return f"the pool takes at most {most}: {members}{also}"


def _counts(size: int, kept: int | None, leaving: int | None, made: int | None) -> tuple[int, int]:
    """How many members are in the pool at most, with one that is being written, and how many are held besides."""
    if not kept and made is None:
        raise ValueError("all checkpoints stay, and so do their members: say how many members a run has")
    inside = size + 1 if made is None else min(size + 1, made)
    gone = None if made is None else made - inside
    held = None if not kept else kept * min(size, size if leaving is None else leaving)
    return inside, min(count for count in (gone, held) if count is not None)
