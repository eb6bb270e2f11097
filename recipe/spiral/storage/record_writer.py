"""What a run writes beside its checkpoints: the records of its games.

One file per step, whole or not there: of games, JSON lines packed by gzip. A game's line ends with a digest of its
other fields, which shows what no replay does: changed log-probabilities or token ids. A resumed run cuts the folder
back to its checkpoint's step, so that nothing is in it twice.
"""

from __future__ import annotations

import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from ..players.records import GameRecord
from .disk import write_whole

#: What stands before and after a line's digest.
BEFORE, AFTER = b',"digest":"', b'"}'
#: zlib's fastest level. Token ids and probabilities hardly pack better with more work.
_LEVEL = 1
_NAME = re.compile(r"(\w+)_step_(\d{6}|[1-9]\d{6,})\.jsonl\.gz")  # as ``file`` writes it: no step is there twice


class RecordWriter:
    """A run's game records: one file per step and split ("train", "val", ...), there whole and never changed."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="records")
        self._under_way: Future[Path] | None = None

    def file(self, split: str, step: int) -> Path:
        """Where a step's games are, or will be."""
        return self.path / f"{split}_step_{step:06d}.jsonl.gz"

    def write(self, split: str, step: int, records: Iterable[GameRecord]) -> Path:
        """Write a step's games, in the order of their keys."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.file(split, step)
        write_whole(file, pack(map(line_of, sorted(records, key=lambda record: record.key))))
        return file

    def write_beside(self, split: str, step: int, records: Sequence[GameRecord]) -> None:
        """Write a step's games while the caller goes on, who must not change them any more; what was being written is
        waited for. Errors of the write come with the next call, or with ``wait``."""
        self.wait()
        self._under_way = self._thread.submit(self.write, split, step, records)

    def wait(self) -> None:
        """Return when all games are on the disk."""
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            under_way.result()

    def cut_back(self, step: int) -> list[Path]:
        """Remove what the run wrote after ``step``, not people's games; returns what was removed."""
        later = [self.path / name for of, number, name in self._files() if number > step and of in ("train", "val")]
        for file in later:
            file.unlink()
        return later

    def _files(self) -> list[tuple[str, int, str]]:
        """Split, step and name of each file. A folder of a hundred thousand takes a tenth of a second."""
        names = os.listdir(self.path) if self.path.is_dir() else []
        return [(match[1], int(match[2]), match[0]) for match in map(_NAME.fullmatch, names) if match]


def pack(lines: Iterable[bytes]) -> Iterator[bytes]:
    """A file's bytes, as any gzip reads them, in pieces. Without a time in its header: equal games give equal files."""
    deflate = zlib.compressobj(_LEVEL, wbits=16 + zlib.MAX_WBITS)  # 16: with the head and the end of a gzip file
    yield from map(deflate.compress, lines)
    yield deflate.flush()


def line_of(record: GameRecord) -> bytes:
    """A game's line, with its end."""
    line = record.to_json().encode()
    return line[:-1] + BEFORE + digest(line).encode() + AFTER + b"\n"


def digest(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=8).hexdigest()
