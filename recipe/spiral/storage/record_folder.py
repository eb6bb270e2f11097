"""What a run writes beside its checkpoints: the records of its games, and its answers to benchmarks' questions.

One JSON-lines file per step, whole or not there. A game's line ends with a digest of its other fields, which shows what
no replay does: changed log-probabilities or token ids. A resumed run cuts both folders back to its checkpoint's step,
so that nothing is in them twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..play.records import GameRecord, to_line
from .disk import write_whole

_DIGEST = "digest"


class RecordFolder:
    """A run's game records: one file per step and split."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def file(self, split: str, step: int) -> Path:
        return self.path / f"{split}_step_{step:06d}.jsonl"

    def write(self, split: str, step: int, records: Iterable[GameRecord]) -> Path:
        """Write a step's games, in the order of their keys."""
        self.path.mkdir(parents=True, exist_ok=True)
        file = self.file(split, step)
        in_order = sorted(records, key=lambda record: record.key)
        write_whole(file, (_with_digest(record.to_json()) + "\n" for record in in_order))
        return file

    def cut_back(self, step: int) -> list[Path]:
        """Remove what was written after ``step``; returns what was removed."""
        later = [file for file in self.path.glob("*_step_*.jsonl") if _step(file) > step]
        for file in later:
            file.unlink()
        return later

    def steps(self, split: str) -> list[int]:
        """The steps that have games, in order."""
        return sorted(_step(file) for file in self.path.glob(f"{split}_step_*.jsonl"))

    def stamp(self, split: str, step: int) -> str:
        """Another text whenever a step's games were written anew."""
        stat = self.file(split, step).stat()
        return f"{stat.st_size}-{stat.st_mtime_ns}"

    def read_step(
        self, split: str, step: int, broken: Callable[[Exception], None] | None = None
    ) -> Iterator[GameRecord]:
        """A step's records.

        Args:
            broken: is told of a line that is no record, which is then passed over; None: it is raised.
        """
        with self.file(split, step).open("rb") as lines:
            for line in lines:
                try:
                    record = parse(line)[0]
                except Exception as error:
                    if broken is None:
                        raise
                    broken(error)
                else:
                    yield record

    def read(self, split: str) -> Iterator[GameRecord]:
        """All records of a split, step after step."""
        for step in self.steps(split):
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
            if _step(file) > step:
                file.unlink()


def _step(file: Path) -> int:
    return int(file.stem.rsplit("_", 1)[1])


def parse(line: str | bytes) -> tuple[GameRecord, bool | None]:
    """A line's record; and whether it is as it was written, None if it has no digest, as in earlier versions.

    Raises:
        Exception: it is no record.
    """
    data = json.loads(line)
    digest = data.pop(_DIGEST, None)
    return GameRecord.from_dict(data), None if digest is None else digest == _digest(to_line(data))


def _with_digest(line: str) -> str:
    return f'{line[:-1]},"{_DIGEST}":"{_digest(line)}"}}'


def _digest(line: str) -> str:
    return hashlib.blake2b(line.encode(), digest_size=8).hexdigest()
