"""An evaluation's games by steps, as ``RecordFolder`` has a run's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from ...players.records import GameRecord
from ..database import DamagedDatabase, Database
from ..evaluation.matches.matchups import SPLIT
from ..evaluation.matches.store import FILE, TABLES

#: Games that are one step, in an evaluation that does not follow a run.
TOGETHER = 500
_PREFIX = "step_"


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
        return not self._is_one(self.folder)

    @property
    def places(self) -> list[Path]:
        """The folders that have games."""
        steps = sorted(self.folder.glob(f"{_PREFIX}*")) if self.follows else [self.folder]
        return [place for place in steps if self._is_one(place) and (place == self.folder or _step(place) is not None)]

    @staticmethod
    def _is_one(folder: Path) -> bool:
        return (folder / FILE).is_file()

    def stamps(self, split: str) -> dict[int, str]:
        """The steps that have games, with a text that is another one whenever they are others. Raises DamagedDatabase:
        a file is none of an evaluation."""
        found: dict[int, str] = {}
        for place in self.places if split == SPLIT else []:
            try:
                with Database(place / FILE, TABLES, read_only=True) as database:
                    games = database.table("games")
                    last = games.last()
                    steps = {_step(place) or 0: (1, last)} if self.follows else _slices(last)
                    found |= {step: games.stamp(*rows) for step, rows in steps.items() if last}
            except FileNotFoundError:
                continue  # it has only begun
        return found

    def read_step(
        self, split: str, step: int, broken: Callable[[Exception], None] | None = None
    ) -> Iterator[GameRecord]:
        """A step's records, as of ``RecordFolder.read_step``; after a damaged row the step's rest is left out."""
        place = next(place for place in self.places if not self.follows or _step(place) == step)
        with Database(place / FILE, TABLES, read_only=True) as database:
            games = database.table("games")
            first, last = (1, games.last()) if self.follows else ((step - 1) * TOGETHER + 1, step * TOGETHER)
            try:
                for _, value in games.rows(first, last):
                    try:
                        record = GameRecord.from_dict(value)
                    except ValueError as error:
                        if broken is None:
                            raise
                        broken(error)
                    else:
                        yield record
            except DamagedDatabase as error:
                if broken is None:
                    raise
                broken(error)


def _slices(last: int) -> dict[int, tuple[int, int]]:
    steps = range(1, -(-last // TOGETHER) + 1)
    return {step: ((step - 1) * TOGETHER + 1, step * TOGETHER) for step in steps}


def _step(place: Path) -> int | None:
    number = place.name.removeprefix(_PREFIX)
    return int(number) if number.isascii() and number.isdecimal() and len(number) < 10 else None
