"""The pool's members on the disk: a run's ``pool/``, its part of a checkpoint, and pools from other runs.

::

    folder = PoolFolder(run_dir / "pool")
    folder.clear()                                    # at a start: what a kill left unfinished
    with folder.writing(name) as place:               # whole, or not there
        ...                                           # write a Hugging Face folder or a PEFT adapter into place
    folder.path(name)                                 # where the engine reads it
    missing = folder.save_into(checkpoint, names)     # inside CheckpointFolder.saving: global_step_N/pool/<name>/
    folder.remove(name)                               # of who left; checkpoints keep what is theirs
    missing = folder.restore_from(checkpoint, names)  # at a resume: exactly these members; [] for a fresh start
    disk_bound(member_bytes, size, checkpoints_kept)  # the most that all this can take
    for step, path, form in members_of(path): ...     # a pool from elsewhere
        with folder.writing(name) as place:
            materialise(path, place)

A member is a folder of its own, and its files are never changed. A checkpoint holds them by hard links: they take no
room twice, and stay for as long as the pool or any checkpoint has them. The folder must be seen by the trainer and by
every worker, like that of the checkpoints; on the same disk as these, or members are copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Form = Literal["hf", "adapter", "checkpoint"]


class PoolFolder:
    """A run's ``pool/``: one folder a member."""

    def __init__(self, path: Path) -> None:
        self.folder = path

    @property
    def names(self) -> list[str]:
        """Whose files are there, sorted."""
        raise NotImplementedError

    def path(self, name: str) -> Path:
        """Where a member's files are, or will be."""
        return self.folder / name

    def clear(self) -> None:
        """Remove what a kill left unfinished."""
        raise NotImplementedError

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The block fills the folder that it is given; then it is the member's, on the disk, in place of an older one.

        Raises:
            ValueError: what the block wrote is no member.
        """
        raise NotImplementedError
        yield

    def remove(self, name: str) -> None:
        """Take a member's files away, if there are any; a checkpoint's stay."""
        raise NotImplementedError

    def save_into(self, checkpoint: Path, names: Sequence[str]) -> list[str]:
        """Put members into a checkpoint's folder that is being written; returns those whose files are gone."""
        raise NotImplementedError

    def restore_from(self, checkpoint: Path | None, names: Sequence[str]) -> list[str]:
        """Have exactly these members, as the checkpoint has them; returns those whose files are gone."""
        raise NotImplementedError


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
        checkpoints_kept: how many checkpoints stay; None: all.
        leaving: how many members leave at most between two checkpoints; None: not known.
        made: how many members the run makes at most, from its start to its end; None: not known.
    """
    raise NotImplementedError


def form_of(folder: Path) -> Form | None:
    """What a folder is: a whole model ("hf"), a PEFT adapter, a checkpoint of ours, or no member (None)."""
    raise NotImplementedError


def members_of(path: Path, start: int = 0, interval: int = 1, size: int | None = None) -> list[tuple[int, Path, Form]]:
    """The members of a pool from elsewhere as (step, folder, form), in the order of steps.

    Raises:
        ValueError: there is nothing that can be used.
    """
    raise NotImplementedError


def materialise(source: Path, target: Path, dtype: str | None = None) -> None:
    """Fill the empty folder ``target`` with a member from elsewhere; a checkpoint of ours is exported."""
    raise NotImplementedError
