"""Writes checkpoints so that the latest one is always whole, and removes old ones.

verl writes into a checkpoint's final folder, names it in place, and removes an older one before that. Here each save
has a new folder, which is sealed and flushed before it gets a checkpoint's name: a kill at any moment leaves what the
tracker names. A folder that is to go loses its name first. What a disk does not let go of is said, and stays.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from .checkpoints import EARLIER, POOL, TRACKER, BrokenCheckpoint, latest, name_latest, shard_file, steps
from .disk import flush
from .manifest import Entries, read_manifest, write_manifest

#: How the names of our folders begin that are no checkpoints: those that are written, and those that are removed.
UNFINISHED = "spiral-unfinished-"


class CheckpointFolder:
    """A run's checkpoints: ``global_step_N/`` and the tracker file. The trainer and every worker must see the folder.

    Args:
        ranks: how many workers a checkpoint is of.
        keep: how many checkpoints stay; None or 0: all.
        spare: a checkpoint that is never removed: the one that the run was told to go on from.
        say: shows people a line.
    """

    def __init__(
        self,
        path: Path,
        ranks: int,
        keep: int | None = None,
        spare: Path | None = None,
        say: Callable[[str], None] = print,
    ) -> None:
        self.path = path
        self._ranks = ranks
        self._keep = keep
        self._spare = spare.resolve() if spare else None
        self._say = say

    def folder(self, step: int) -> Path:
        return self.path / f"global_step_{step}"

    def clear(self) -> None:
        """Remove what a kill left, and name the latest checkpoint, as verl looks for its name."""
        for left in self.path.glob(f"{UNFINISHED}*"):
            self._remove(left)
        if (step := latest(self.path)) is not None:
            self._name(step)

    def go_back(self, step: int) -> list[Path]:
        """Name a step as the latest, before what was written after it is removed. Otherwise a start after a kill would
        go on from a later checkpoint, whose games are gone. Those are put aside, and returned."""
        self._name(step)
        later, aside = [s for s in steps(self.path) if s > step], self.path / time.strftime(EARLIER)
        if later:
            aside.mkdir(exist_ok=True)
        return [folder.rename(aside / folder.name) for folder in map(self.folder, later)]

    def _name(self, step: int) -> None:
        if latest(self.path) != step or not (self.path / TRACKER).exists():
            name_latest(self.path, step)

    @contextmanager
    def saving(self, step: int) -> Iterator[Path]:
        """The block writes ``global_step_<step>`` into the folder that it is given; then it is the latest checkpoint.

        Raises:
            BrokenCheckpoint: files of ranks did not come.
        """
        place = self.path / f"{UNFINISHED}{step}-{uuid4().hex[:8]}"
        place.mkdir(parents=True)
        self._prune((self._keep or 0) - 1)
        try:
            yield place
            new = place / f"global_step_{step}"
            for rank in range(self._ranks):
                if not shard_file(new / "actor", self._ranks, rank).is_file():
                    raise BrokenCheckpoint(
                        f"checkpoint of step {step}: the weights of rank {rank} did not come: "
                        f"trainer.default_local_dir={self.path} must be a folder that all machines share"
                    )
            seal(new)
            if self.folder(step).exists():
                self._remove(self.folder(step))
            new.rename(self.folder(step))
            name_latest(self.path, step)
        finally:
            self._remove(place)
        self._prune(self._keep or 0)

    def _prune(self, most: int) -> None:
        """Remove the oldest checkpoints down to so many; never the latest one."""
        if not self._keep:
            return
        there, named = steps(self.path), latest(self.path)
        for step in there[: max(len(there) - most, 0)]:
            if step != named and self.folder(step).resolve() != self._spare:
                self._remove(self.folder(step))

    def _remove(self, folder: Path) -> None:
        """Take a folder away, which is never half there under a checkpoint's name."""
        gone = folder
        with suppress(OSError):
            if not folder.name.startswith(UNFINISHED):
                gone = folder.rename(folder.with_name(f"{UNFINISHED}old-{uuid4().hex[:8]}"))
            shutil.rmtree(gone, ignore_errors=True)
        if gone.exists():
            self._say(f"{gone}: could not be removed (something there is in use); remove it later")


def seal(folder: Path) -> None:
    """Write the manifest of a checkpoint that is complete, and wait until all of it is on the disk. The pool's members
    have manifests, whose digests count: they were read when they were written."""
    known: Entries = {}
    for member in folder.glob(f"{POOL}/*"):
        entries = read_manifest(member) or {}
        known |= {f"{POOL}/{member.name}/{name}": entry for name, entry in entries.items()}
    write_manifest(folder, known)
    flush(folder)
