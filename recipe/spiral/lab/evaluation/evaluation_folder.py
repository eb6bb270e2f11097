"""An evaluation's folder: what it is, and the lines of JSON that are appended as games end and answers come.

A kill costs the games that were under way, and at most a cut last line, which the next start drops. The same evaluation
goes on with what is missing; with other settings it is refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ...players.records import GameRecord
from ...storage.disk import read_json, write_whole
from ...storage.record_writer import line_of
from ..record_folder import parse
from .settings import Refused

#: What the evaluation is, and its lines: games, policy tables and answers to benchmarks.
MANIFEST, GAMES, TABLES, ANSWERS = "evaluation.json", "games.jsonl", "tables.jsonl", "answers.jsonl"


class Lines:
    """A file of lines, which one process appends to, until it ends, while others may read it."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._out = file.open("ab", buffering=0)
        self._out.truncate(sum(map(len, self)))  # without what a kill has cut off

    def append(self, line: bytes) -> None:
        """Append a line, with its end; once this returns, a kill of the process cannot take it away. Raises OSError:
        there is no room."""
        if (self._out.write(line) or 0) < len(line):
            raise OSError(f"{self.file}: there is no room for a line")

    def __iter__(self) -> Iterator[bytes]:
        return lines_of(self.file)


def lines_of(file: Path) -> Iterator[bytes]:
    """The whole lines of a file, also while it is written."""
    with file.open("rb") as lines:
        yield from (line for line in lines if line.endswith(b"\n"))


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


def _over(manifest: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """A manifest, with another's policies and settings where it has none."""
    used = {name: value for name, value in manifest["settings"].items() if value is not None}
    merged = {"policies": {**other["policies"], **manifest["policies"]}, "settings": {**other["settings"], **used}}
    return {**manifest, **merged}


def _changes(before: Any, now: Any, path: str = "") -> Iterator[str]:
    """What is not the same in two values as JSON has them."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for key in sorted({*before, *now}):
            yield from _changes(before.get(key), now.get(key), f"{path}.{key}" if path else key)
    elif before != now:
        yield f"{path}: {json.dumps(before)[:100]} there, {json.dumps(now)[:100]} now"


class EvaluationFolder:
    """An evaluation's folder, open for continuing it. One process at a time.

    Attributes:
        manifest: what decides the folder's games and their results: seed, randomness, by name what identifies each
            policy (its kind, the resolved path, a fingerprint of its weights), and settings (rules, sampling, prompts;
            None for what nothing has used).

    Raises:
        Refused: the folder has games, tables or answers that were made with other settings.
    """

    def __init__(self, folder: Path, manifest: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.games, self.tables, self.answers = (Lines(folder / name) for name in (GAMES, TABLES, ANSWERS))
        self.manifest: dict[str, Any] = json.loads(json.dumps(manifest))  # tuples are lists
        file = folder / MANIFEST
        # one that was refused before it had anything does not keep the folder
        if file.is_file() and any(any(lines) for lines in (self.games, self.tables, self.answers)):
            earlier = read_json(file)
            self.manifest, before = _over(self.manifest, earlier), _over(earlier, self.manifest)
            if changes := "; ".join(_changes(before, self.manifest)):
                raise Refused(
                    f"{folder} holds an evaluation with other settings: use the same settings, or another folder: "
                    f"{changes}"
                )
        write_whole(file, json.dumps(self.manifest, indent=1) + "\n")

    def add(self, record: GameRecord) -> None:
        """Store a game; errors as of ``Lines.append``."""
        self.games.append(line_of(record))
