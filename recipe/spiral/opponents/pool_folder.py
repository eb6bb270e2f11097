"""The weights of the pool's members on the disk: a run's ``pool/``, and its part of a checkpoint.

A member is a folder of its own (a Hugging Face folder, or with LoRA an adapter of PEFT's), and its files are never
changed: a manifest holds their digests. A checkpoint holds them by hard links: they take no room twice,
and stay for as long as the pool or any checkpoint has them. The trainer and every worker must see the folder, like that
of the checkpoints. On another disk than these, members are copied.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from ..storage.checkpoints import POOL
from ..storage.disk import flush, link_or_copy, whole_folder
from ..storage.manifest import MANIFEST, write_manifest
from .model_files import missing_files


class PoolFolder:
    """A run's ``pool/``: one folder a member, which is whole or not there.

    Attributes:
        say: shows people a line.
    """

    def __init__(self, path: Path) -> None:
        self.folder = Path(path)
        self.say: Callable[[str], None] = print

    @property
    def names(self) -> list[str]:
        """Whose folders are there, sorted."""
        return _members(self.folder)

    def path(self, name: str) -> Path:
        """Where a member's files are, or will be."""
        return self.folder / name

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """The block fills the folder that it is given; then it is the member's, on the disk, in place of an older one.

        Raises:
            ValueError: what the block wrote is no whole member; nothing has changed.
            Exception: whatever the block raises; nothing has changed.
        """
        with whole_folder(self.path(name)) as place:
            yield place
            if missing := missing_files(place):
                raise ValueError(f"member {name} of the pool is not whole: missing or cut short: {', '.join(missing)}")
            if not (place / MANIFEST).is_file():
                write_manifest(place)
            flush(place)

    def remove(self, name: str) -> None:
        """Take a member's files away, if there are any; a checkpoint's stay. What cannot be removed is said."""
        if self.path(name).exists():  # never half there under its own name
            self._discard(self.path(name).rename(self.folder / f".{name}.{uuid4().hex[:8]}"))

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all other members."""
        for name in self.names:
            if name not in names:
                self.remove(name)

    def save_into(self, checkpoint: Path, names: Iterable[str]) -> None:
        """Put members into a checkpoint's folder that is being written, as ``pool/<name>/``."""
        (checkpoint / POOL).mkdir(parents=True, exist_ok=True)
        for name in names:
            link_or_copy(self.path(name), checkpoint / POOL / name)

    def restore_from(self, checkpoint: Path | None) -> None:
        """Have exactly the members that a checkpoint holds (None: nobody): all others were added after it."""
        for left in self.folder.glob(".*"):  # by a kill
            self._discard(left)
        self.keep_only(())
        if checkpoint is None:
            return
        for name in _members(checkpoint / POOL):
            with self.writing(name) as place:
                link_or_copy(checkpoint / POOL / name, place)

    def _discard(self, folder: Path) -> None:
        try:
            shutil.rmtree(folder)
        except OSError as error:  # open files on NFS, a busy disk
            self.say(f"{folder}: cannot be removed ({error.strerror or error}); remove it when nothing uses it")


def _members(folder: Path) -> list[str]:
    """The names of the members in a folder, sorted."""
    return sorted(sub.name for sub in folder.glob("[!.]*") if sub.is_dir())
