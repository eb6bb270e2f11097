"""The records of a run's games, as they are read, and the games that they name."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ..games import Game, make
from ..games.registry import is_class
from ..players.records import GameRecord, to_line
from ..storage.record_writer import AFTER, BEFORE, RecordWriter, digest

#: Bytes of a game, and of a step's games, that no run writes: a small file may unpack to any size.
LONGEST_LINE, LARGEST_FILE = 2**28, 2**36
_decode = msgspec.json.Decoder(GameRecord).decode


class Torn(ValueError):
    """A file ends too early, or was changed; the lines before are whole. The message names the file."""


class RecordFolder(RecordWriter):
    """A run's game records, which are read as they are asked for.

    Whoever follows a run asks for the ``steps`` after the last one that it has seen. Where a run goes back to a
    checkpoint, steps vanish, and others take their places.
    """

    def steps(self, split: str, after: int = -1) -> list[int]:
        """The steps that have games, in order: those after a step."""
        return sorted(number for of, number, _ in self._files() if of == split and number > after)

    def read_step(
        self, split: str, step: int, broken: Callable[[Exception], None] | None = None
    ) -> Iterator[GameRecord]:
        """A step's records. ``broken`` is told of what cannot be read, which is passed over then; None: it raises."""
        lines = unpack(self.file(split, step))
        while True:
            try:
                line = next(lines, None)
                if line is None:
                    return
                record = parse(line)[0]
            except Exception as error:
                if broken is None:
                    raise
                broken(error)
            else:
                yield record

    def read(self, split: str, first: int = 0, last: int | None = None) -> Iterator[GameRecord]:
        """The records of a split, or of its steps from ``first`` to ``last``, in order, read as they are asked for."""
        for step in self.steps(split, first - 1):
            if last is None or step <= last:
                yield from self.read_step(split, step)


def parse(line: bytes) -> tuple[GameRecord, bool]:
    """A line's record; and whether it is as it was written. What is no record raises any exception."""
    body, _, end = line.rstrip(b"\n").rpartition(BEFORE)
    if end == digest(body + b"}").encode() + AFTER:
        with suppress(msgspec.MsgspecError):  # a number that is none in JSON
            return _decode(line), True
    data = json.loads(line)
    written = data.pop("digest", None)
    # who writes JSON anew may set other spaces
    return msgspec.convert(data, GameRecord), written == digest(to_line(data).encode())


def unpack(file: Path) -> Iterator[bytes]:
    """A file's lines, each with its end. Raises Torn: it is damaged. What could be read of it was given before, the
    last line perhaps in part."""
    try:
        with gzip.open(file) as packed:
            if not file.stat().st_size:  # which gzip takes for a file without lines
                raise EOFError("it is empty")
            while line := packed.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE or packed.tell() > LARGEST_FILE:
                    raise EOFError("it has more than any step's games")
                yield line
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise Torn(f"{file}: is cut short or damaged: {error}") from error


class NotNamed(ImportError):
    """A file names a game from outside, and the user does not: it is not imported."""

    def __init__(self, game_id: str) -> None:
        super().__init__(f"a folder's own code is not imported; if you trust it, allow the game by --game {game_id}")


def make_named(game_id: str, seed: int, named: Container[str]) -> Game:
    """As ``make``, of an id that is read from a folder's records or config. ``named`` are the classes
    (``module:Class``) that the user has named; ``NotNamed``: the id is another class, which is not imported."""
    if is_class(game_id) and game_id not in named:
        raise NotNamed(game_id)
    return make(game_id, seed)
