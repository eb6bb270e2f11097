"""What a run writes beside its checkpoints: the records of its games, and its answers to benchmarks' questions.

One file per step, whole or not there: of games, JSON lines packed by gzip. A game's line ends with a digest of its
other fields, which shows what no replay does: changed log-probabilities or token ids. A resumed run cuts both folders
back to its checkpoint's step, so that nothing is in them twice.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ..players.records import GameRecord, to_line
from .disk import write_whole
from .packed_lines import count, pack, unpack

#: After so many lines of a file that are no records the rest is not read.
MOST_BROKEN = 1000
_DIGEST = "digest"
#: What stands before and after a line's digest.
_BEFORE, _AFTER = b',"digest":"', b'"}'
_NAME = re.compile(r"(\w+)_step_(\d+)\.jsonl\.gz")
_decode = msgspec.json.Decoder(GameRecord).decode


class RecordFolder:
    """A run's game records: one file per step and split ("train", "val", ...).

    A step's file appears at once and is never changed, so whoever follows a run asks for the ``steps`` after the last
    one that it has seen. Where a run goes back to a checkpoint, steps vanish, and others take their places.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def file(self, split: str, step: int) -> Path:
        """Where a step's games are, or will be."""
        return self.path / f"{split}_step_{step:06d}.jsonl.gz"

    def write(self, split: str, step: int, records: Iterable[GameRecord]) -> Path:
        """Write a step's games, in the order of their keys."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.file(split, step)
        in_order = sorted(records, key=lambda record: record.key)
        write_whole(file, pack(len(in_order), (_with_digest(record.to_json().encode()) for record in in_order)))
        return file

    def cut_back(self, step: int) -> list[Path]:
        """Remove what was written after ``step``; returns what was removed."""
        later = [self.path / name for _, number, name in self._files() if number > step]
        for file in later:
            file.unlink()
        return later

    def steps(self, split: str, after: int = -1) -> list[int]:
        """The steps that have games, in order: those after a step."""
        return sorted(number for of, number, _ in self._files() if of == split and number > after)

    def _files(self) -> list[tuple[str, int, str]]:
        """Split, step and name of each file. A folder of a hundred thousand takes a tenth of a second."""
        try:
            with os.scandir(self.path) as entries:
                matches = [match for entry in entries if (match := _NAME.fullmatch(entry.name))]
        except FileNotFoundError:
            return []
        return [(match[1], int(match[2]), match[0]) for match in matches]

    def count(self, split: str, steps: Iterable[int] | None = None) -> int:
        """How many games steps have, discarded ones included, without reading them; None: all steps."""
        return sum(count(self.file(split, step)) for step in (self.steps(split) if steps is None else steps))

    def lines(self, split: str, step: int) -> Iterator[bytes]:
        """A step's lines, for ``parse``. Raises Torn: the file is damaged; the lines before were given."""
        return unpack(self.file(split, step))

    def read_step(
        self, split: str, step: int, broken: Callable[[Exception], None] | None = None
    ) -> Iterator[GameRecord]:
        """A step's records. ``broken`` is told of what cannot be read, which is passed over then; None: it raises."""
        lines, left = self.lines(split, step), MOST_BROKEN
        while left:
            try:
                line = next(lines, None)
                if line is None:
                    return
                record = parse(line)[0]
            except Exception as error:
                if broken is None:
                    raise
                broken(error)
                left -= 1
            else:
                yield record

    def read(self, split: str, first: int = 0, last: int | None = None) -> Iterator[GameRecord]:
        """The records of a split, or of its steps from ``first`` to ``last``, in order, read as they are asked for."""
        for step in self.steps(split, first - 1):
            if last is None or step <= last:
                yield from self.read_step(split, step)


class AnswerFolder:
    """A run's answers to benchmarks' questions: one file per validation."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def write(self, step: int, answers: Iterable[Mapping[str, Any]]) -> Path:
        """Each answer with its verdict, in the order in which they were asked."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.path / f"step_{step:06d}.jsonl"
        write_whole(file, (json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers))
        return file

    def cut_back(self, step: int) -> None:
        """Remove what was written after ``step``."""
        for file in self.path.glob("step_*.jsonl"):
            if int(file.stem.removeprefix("step_")) > step:
                file.unlink()


def parse(line: bytes) -> tuple[GameRecord, bool]:
    """A line's record; and whether it is as it was written. What is no record raises any exception."""
    body, _, end = line.rstrip(b"\n").rpartition(_BEFORE)
    if end == _digest(body + b"}").encode() + _AFTER:
        with suppress(msgspec.MsgspecError):  # a number that is none in JSON
            return _decode(line), True
    data = json.loads(line)
    digest = data.pop(_DIGEST, None)
    # who writes JSON anew may set other spaces
    return GameRecord.from_dict(data), digest == _digest(to_line(data).encode())


def _with_digest(line: bytes) -> bytes:
    return line[:-1] + _BEFORE + _digest(line).encode() + _AFTER + b"\n"


def _digest(line: bytes) -> str:
    return hashlib.blake2b(line, digest_size=8).hexdigest()
