"""The weights of the pool's members on the disk: a run's ``pool/``, and its part of a checkpoint.

A member is a folder of its own (a Hugging Face folder, or with LoRA an adapter of PEFT's), and its files are never
changed: a manifest holds their digests. A checkpoint holds them by hard links: they take no room twice,
and stay for as long as the pool or any checkpoint has them. The trainer and every worker must see the folder, like that
of the checkpoints. On another disk than these, members are copied.
"""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..storage.checkpoints import POOL
from ..storage.disk import flush, link_or_copy, put_in_place
from ..storage.manifest import MANIFEST, write_manifest
from .model_files import missing_files

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
        """Where a member's files are, or will be; a ``ValueError`` if no folder can have that name here."""
        if not name or Path(name).name != name or name.startswith((_UNFINISHED, ".")):
            raise ValueError(f"{name!r} cannot be a member's name: it names a folder")
        return self.folder / name

    def clear(self) -> None:
        """Remove what a kill left unfinished."""
        for pattern in (f"{_UNFINISHED}*", f".{_UNFINISHED}*"):  # hidden: those of an export, and of who is removed
            for left in self.folder.glob(pattern):
                shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def writing(self, name: str, again: bool = False) -> Iterator[Path]:
        """The block fills the folder that it is given; then it is the member's, on the disk, in place of an older one.
        ``again``: a checkpoint gives the member back, with its manifest.

        Raises:
            ValueError: what the block wrote is no whole member; nothing has changed.
            Exception: whatever the block raises; nothing has changed.
        """
        final, place = self.path(name), self.folder / f"{_UNFINISHED}{name}"
        shutil.rmtree(place, ignore_errors=True)
        try:
            place.mkdir(parents=True)
            yield place
            if missing := missing_files(place):
                raise ValueError(f"member {name} of the pool is not whole: missing or cut short: {', '.join(missing)}")
            if not again or not (place / MANIFEST).is_file():
                write_manifest(place)
            flush(place)
            self.remove(name)
            put_in_place(place, final)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def remove(self, name: str) -> None:
        """Take a member's files away, if there are any, at once; a checkpoint's stay."""
        gone = self.folder / f".{_UNFINISHED}{name}"
        shutil.rmtree(gone, ignore_errors=True)
        with suppress(FileNotFoundError):
            self.path(name).rename(gone)  # never half there under its own name
            shutil.rmtree(gone, ignore_errors=True)

    def save_into(self, checkpoint: Path, names: Iterable[str]) -> None:
        """Put members into a checkpoint's folder that is being written, as ``pool/<name>/``; but those whose files are
        gone or cut short, which whoever is to load them finds out."""
        (checkpoint / POOL).mkdir(parents=True, exist_ok=True)
        for name in names:
            if not missing_files(self.path(name)):
                link_or_copy(self.path(name), checkpoint / POOL / name)

    def restore_from(self, checkpoint: Path | None, names: Iterable[str]) -> list[str]:
        """Have exactly these members, as the checkpoint has them, and no others: those were added after it.

        A member that is here, but not in the checkpoint's folder, stays as it is. Those that are returned are to be
        left out: their files are neither in the checkpoint nor here, or not whole.

        Args:
            checkpoint: ``global_step_N``; None at a fresh start.
            names: who was in the pool then.
        """
        self.clear()
        wanted, missing = list(names), []
        for name in wanted:
            ours = self.path(name)
            theirs = checkpoint / POOL / name if checkpoint is not None else None
            if theirs is not None and not missing_files(theirs):
                if not _same(theirs, ours):
                    with self.writing(name, again=True) as place:
                        link_or_copy(theirs, place)
            elif missing_files(ours):
                missing.append(name)
        for name in self.names:
            if name not in wanted or name in missing:
                self.remove(name)
        return missing


def _same(theirs: Path, ours: Path) -> bool:
    """Whether two folders hold the same files; those that are links to one file, or of one length and time, are."""
    names = [{str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()} for folder in (theirs, ours)]
    return names[0] == names[1] and not any(filecmp.cmpfiles(theirs, ours, names[0])[1:])
