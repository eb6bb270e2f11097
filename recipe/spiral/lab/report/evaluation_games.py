"""An evaluation's games by steps, as ``RecordFolder`` has a run's."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from ...players.records import GameRecord
from ..database import DamagedDatabase, Database
from ..evaluation.matches.matchups import SPLIT
from ..evaluation.matches.store import FILE, TABLES

#: Games that are one step, in an evaluation that does not follow a run.
TOGETHER = 500


def is_evaluation(folder: Path) -> bool:
    """Whether the folder is an evaluation's; also of one that follows a run, which has a folder for each checkpoint."""
    return bool(EvaluationGames(folder).places)


class EvaluationGames:
    """The games so far, also while it goes on. A step is a checkpoint's, where the evaluation follows a run; otherwise
    it is so many games in the order in which they ended, counted from 1 on."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def follows(self) -> bool:
        return not (self.folder / FILE).is_file()

    @property
    def places(self) -> dict[int, Path]:
        """The folders that have games, by their checkpoints' steps; one that does not follow a run is of step 0."""
        named = (
            (re.fullmatch(r"step_([0-9]{1,9})", place.name), place) for place in sorted(self.folder.glob("step_*"))
        )
        steps = {int(match[1]): place for match, place in named if match} if self.follows else {0: self.folder}
        return {step: place for step, place in steps.items() if (place / FILE).is_file()}

    def stamps(self, split: str) -> dict[int, str]:
        """The steps that have games, with a text that is another one whenever they are others. Raises DamagedDatabase:
        a file is none of an evaluation."""
        found: dict[int, str] = {}
        for step, place in self.places.items() if split == SPLIT else ():
            try:
                with Database(place / FILE, TABLES, read_only=True) as database:
                    games = database.table("games")
                    last = games.last()
                    slices = range(1, -(-last // TOGETHER) + 1)
                    steps = {step: (1, last)} if self.follows else {number: _rows(number) for number in slices}
                    found |= {number: games.stamp(*rows) for number, rows in steps.items() if last}
            except FileNotFoundError:
                continue  # it has only begun
        return found

    def read_step(self, split: str, step: int, broken: Callable[[Exception], None]) -> Iterator[GameRecord]:
        """A step's records, as of ``RecordFolder.read_step``; after a damaged row the step's rest is left out."""
        place = self.places[step if self.follows else 0]
        with Database(place / FILE, TABLES, read_only=True) as database:
            games = database.table("games")
            try:
                for _, value in games.rows(*((1, games.last()) if self.follows else _rows(step))):
                    try:
                        yield GameRecord.from_dict(value)
                    except ValueError as error:
                        broken(error)
            except DamagedDatabase as error:
                broken(error)


def _rows(step: int) -> tuple[int, int]:
    return (step - 1) * TOGETHER + 1, step * TOGETHER
