"""Writes checkpoints so that the latest one is always whole, and removes old ones.

verl writes into a checkpoint's final folder, names it in place, and removes an older one before that. Here a crash at
any moment leaves what the tracker names, and nothing half written under the name of a checkpoint.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .checkpoints import (
    COPIED,
    EARLIER,
    POOL,
    TRACKER,
    UNFINISHED,
    BrokenCheckpoint,
    latest,
    missing_parts,
    name_latest,
    seal,
    steps,
    torn,
)
from .disk import BrokenOff, DiskFull, flush, free, freed, gigabytes, is_full, size


class CheckpointFolder:
    """A run's checkpoints: ``global_step_N/``, the tracker file, and ``unfinished/`` while one is written.

    The folder must be seen by the trainer and by every worker.

    Args:
        ranks: how many workers a checkpoint is of.
        keep: how many checkpoints stay; None or 0: all.
        spare: a checkpoint that is never removed: the one that the run was told to go on from.
    """

    def __init__(self, path: Path, ranks: int, keep: int | None = None, spare: Path | None = None) -> None:
        self.path = path
        self.ranks = ranks
        self._keep = keep
        self._spare = spare.resolve() if spare else None
        self._unfinished = path / UNFINISHED

    def folder(self, step: int) -> Path:
        return self.path / f"global_step_{step}"

    def clear(self) -> None:
        """Remove what a kill left unfinished, and name what it left without a name."""
        if self._unfinished.exists():
            if (step := latest(self.path)) is not None:
                self._name(step)
            shutil.rmtree(self._unfinished, ignore_errors=True)

    def go_back(self, step: int) -> list[Path]:
        """Name a step as the latest, before what was written after it is removed. Otherwise a start after a kill would
        go on from a later checkpoint, whose games are gone. Those are put aside, and returned: they would count as this
        run's as soon as it has come to their steps again."""
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
            DiskFull: it would not fit; the block did not run.
            BrokenOff: the disk was full; what had been written is removed.
            BrokenCheckpoint: what the block wrote is not whole.
        """
        self.clear()
        self._prune(step)
        needed, room = self._needed(), free(self.path)
        if room < needed:
            raise DiskFull(self._message(step, f"it takes {gigabytes(needed)}, and {gigabytes(room)} are free"))
        try:
            self._unfinished.mkdir(parents=True)
            yield self._unfinished
            self._publish(step)
        except Exception as error:
            if is_full(error):
                raise BrokenOff(self._message(step, f"{gigabytes(room)} were free")) from error
            raise
        finally:
            self.clear()
        self._prune(step)

    def shortage(self) -> str | None:
        """A line for people if the next checkpoint will not fit."""
        step = latest(self.path)
        if step is None:
            return None
        needed, room = self._needed(), free(self.path) + sum(map(freed, self._surplus(step + 1)))
        if room >= needed:
            return None
        return (
            f"the disk is nearly full: a checkpoint takes {gigabytes(needed)}, {gigabytes(room)} are left in "
            f"{self.path}: the next one will not fit"
        )

    def _publish(self, step: int) -> None:
        new = self._unfinished / self.folder(step).name
        if broken := torn(new):
            raise BrokenCheckpoint(f"checkpoint of step {step}: {', '.join(broken[:3])} could not be read back")
        seal(new)
        if missing := missing_parts(new, self.ranks):
            raise BrokenCheckpoint(
                f"checkpoint of step {step}: {', '.join(missing[:3])} did not come: "
                f"trainer.default_local_dir={self.path} must be a folder that all machines share"
            )
        flush(new)
        if self.folder(step).exists():
            self._withdraw(step)
        new.rename(self.folder(step))
        name_latest(self.path, step)

    def _withdraw(self, step: int) -> None:
        """Take away a checkpoint of the same step, of a time that the run went back from."""
        if latest(self.path) == step:
            others = [s for s in steps(self.path) if s < step and not missing_parts(self.folder(s), self.ranks)]
            if others:
                name_latest(self.path, others[-1])
            else:
                (self.path / TRACKER).unlink()
        self._discard(self.folder(step))

    def _discard(self, folder: Path) -> None:
        """Remove a checkpoint, which is never half removed under its own name."""
        self._unfinished.mkdir(exist_ok=True)
        gone = self._unfinished / f"old_{folder.name}"
        folder.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)

    def _prune(self, step: int) -> None:
        """Make room for a checkpoint of ``step``, or for what is kept beside it."""
        for folder in self._surplus(step):
            self._discard(folder)
        self.clear()

    def _surplus(self, step: int) -> list[Path]:
        """Checkpoints before ``step`` that need not stay beside it; never the one that the tracker names."""
        if not self._keep:
            return []
        older = [s for s in steps(self.path) if s < step]
        old = older[: max(len(older) - (self._keep - 1), 0)]
        folders = [self.folder(s) for s in old if s != latest(self.path)]
        return [folder for folder in folders if folder.resolve() != self._spare]

    def _needed(self) -> int:
        """As many bytes as the latest checkpoint takes; 0 if there is none.

        The pool's members are linked into a checkpoint, and take nothing there; unless they had to be copied.
        """
        step = latest(self.path)
        if step is None:
            return 0
        folder = self.folder(step)
        linked = 0 if (folder / POOL / COPIED).exists() else size(folder / POOL)
        return size(folder) - linked

    def _message(self, step: int, why: str) -> str:
        return f"the disk is full: the checkpoint of step {step} could not be written to {self.path} ({why})"
