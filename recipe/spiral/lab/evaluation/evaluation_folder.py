"""An evaluation's folder: what it is, and the lines of JSON that are appended as games end and answers come.

A kill costs the games that were under way, and at most a cut last line, which the next start drops. The same evaluation
goes on with what is missing; with other settings it is refused.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...players.records import GameRecord
from ...storage.disk import read_json, write_whole
from ...storage.record_writer import line_of
from ..record_folder import parse

#: What the evaluation is, and its lines: games, policy tables and answers to benchmarks.
MANIFEST, GAMES, TABLES, ANSWERS = "evaluation.json", "games.jsonl", "tables.jsonl", "answers.jsonl"


class OtherEvaluation(ValueError):
    """A folder holds an evaluation with other settings; the message says what differs."""


class Lines:
    """A file of lines, which one process appends to while others may read it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._out = file.open("ab", buffering=0)
        self._end = _whole(file)
        self._out.truncate(self._end)

    def append(self, line: bytes) -> None:
        """Append a line, with its end; once this returns, a kill of the process cannot take it away. Raises OSError:
        there is no room, and the file is as it was before."""
        try:
            if (self._out.write(line) or 0) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.file))
        except OSError:
            self._out.truncate(self._end)
            raise
        self._end += len(line)

    def __iter__(self) -> Iterator[bytes]:
        return lines_of(self.file)

    def close(self) -> None:
        self._out.close()


def lines_of(file: Path) -> Iterator[bytes]:
    """The whole lines of a file, also while it is written."""
    with file.open("rb") as lines:
        yield from (line for line in lines if line.endswith(b"\n"))


def _whole(file: Path) -> int:
    """Where the last whole line ends."""
    with file.open("rb") as lines:
        end = lines.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - 2**20)
            lines.seek(start)
            if (place := lines.read(end - start).rfind(b"\n")) >= 0:
                return start + place + 1
            end = start
    return 0


def read_games(folder: str | Path) -> Iterator[GameRecord]:
    """An evaluation's games so far, void ones included, in the order in which they ended.

    Raises:
        FileNotFoundError: there is no evaluation.
        ValueError: a line is not as it was written; the message says which.
    """
    file = Path(folder) / GAMES
    for number, line in enumerate(lines_of(file), start=1):
        try:
            record, unchanged = parse(line)
        except Exception:  # what is no record raises anything
            unchanged = False
        if not unchanged:
            raise ValueError(f"{file}: line {number} was changed; remove it, and its game is played again")
        yield record


@dataclass(frozen=True)
class Manifest:
    """What decides an evaluation's games and their results: those of other settings must not be counted with them.

    Attributes:
        seed, randomness: the evaluation's.
        policies: by name, what identifies each: its kind, the resolved path, a fingerprint of its weights.
        settings: what else must not change: rules, sampling, prompts; None for what nothing has used.
    """

    seed: int
    randomness: str
    policies: Mapping[str, Any]
    settings: Mapping[str, Any]

    def merged_with(self, earlier: Manifest, folder: Path) -> Manifest:
        """The manifest of the folder's evaluation that is continued: it has the policies of both.

        Raises:
            OtherEvaluation: something that both name is not the same.
        """
        before, merged = earlier._filled(self), self._filled(earlier)
        if changes := "; ".join(_differences(vars(before), vars(merged))):
            raise OtherEvaluation(
                f"{folder} holds an evaluation with other settings: use the same settings, or another folder: {changes}"
            )
        return merged

    def _filled(self, other: Manifest) -> Manifest:
        """With the other's further policies, and its value of each setting that nothing has used here."""
        settings = {name: other.settings.get(name) if own is None else own for name, own in self.settings.items()}
        return replace(self, policies={**other.policies, **self.policies}, settings=settings)


def _differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """What is not the same in two values as JSON has them."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _differences(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif before != now:
        yield f"{path}: {json.dumps(before)[:100]} there, {json.dumps(now)[:100]} now"


class EvaluationFolder:
    """An evaluation's folder, open for continuing it. One process at a time.

    Raises:
        OtherEvaluation: the folder's games were played with other settings.
    """

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder
        self._lines = [Lines(folder / name) for name in (GAMES, TABLES, ANSWERS)]
        self.games, self.tables, self.answers = self._lines
        try:
            self.manifest = self._agree(Manifest(**json.loads(json.dumps(vars(manifest)))))  # tuples are lists
        except BaseException:
            self.close()
            raise

    def _agree(self, manifest: Manifest) -> Manifest:
        file = self.path / MANIFEST
        # one that was refused before it had anything does not keep the folder
        if file.is_file() and any(lines.file.stat().st_size for lines in self._lines):
            manifest = manifest.merged_with(Manifest(**read_json(file)), self.path)
        write_whole(file, json.dumps(vars(manifest), indent=1) + "\n")
        return manifest

    def add(self, record: GameRecord) -> None:
        """Store a game; errors as of ``Lines.append``."""
        self.games.append(line_of(record))

    def close(self) -> None:
        for lines in self._lines:
            lines.close()

    def __enter__(self) -> EvaluationFolder:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
