"""An evaluation's games by steps, as ``RecordFolder`` has a run's: so many games in the order in which they ended."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from ...players.records import GameRecord
from ..evaluation.evaluation_folder import GAMES, lines_of
from ..evaluation.matchups import SPLIT
from ..record_folder import parse
from .inside import is_inside

#: Games that are one step.
TOGETHER = 500


def is_evaluation(folder: Path) -> bool:
    return is_inside(folder, folder / GAMES)


class EvaluationGames:
    """The games so far, also while it goes on; steps are counted from 1 on."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / GAMES

    def stamps(self, split: str) -> dict[int, str]:
        """The steps that have games, with a text that is another one whenever they are others."""
        found: dict[int, str] = {}
        for number, line in enumerate(lines_of(self._file) if split == SPLIT else ()):
            step = number // TOGETHER + 1
            found[step] = f"{zlib.crc32(line, int(found.get(step, '0')))}"
        return found

    def read_step(self, split: str, step: int, broken: Callable[[Exception], None]) -> Iterator[GameRecord]:
        """A step's records, as of ``RecordFolder.read_step``."""
        for line in islice(lines_of(self._file), (step - 1) * TOGETHER, step * TOGETHER):
            try:
                yield parse(line)[0]
            except Exception as error:  # what is no record raises anything
                broken(error)
