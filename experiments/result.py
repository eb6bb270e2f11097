"""What an experiment leaves behind: one JSON file with its figures and how they came about."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from recipe.spiral.storage.disk import write_whole


class BadResult(ValueError):
    """A result file does not hold what a result file holds; the message says where, and what is wrong."""


@dataclass(frozen=True)
class Result:
    """An experiment's result.

    Attributes:
        name: the experiment's, which names its files as well.
        title: one line that says what was asked.
        command: what was run, from the project's root.
        commit: of the code that played the games; several, with ", " between them, if runs have different ones, or were
            resumed by another; "unknown" of runs that do not say.
        seeds: each is a repetition.
        games: how many were played in all.
        minutes: the time that its runs took, one after the other.
        settings: the config.
        rows: the table, each with the same keys.
        figures: whatever else the page says.
    """

    name: str
    title: str
    command: str
    commit: str
    seeds: tuple[int, ...]
    games: int
    minutes: float
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    figures: dict[str, Any]

    def __post_init__(self) -> None:
        kinds = {"seeds": (tuple,), "games": (int,), "minutes": (int, float), "settings": (dict,), "rows": (list,)}
        for field in fields(self):
            value, expected = getattr(self, field.name), kinds.get(field.name, (str, dict)[field.name == "figures"])
            if isinstance(value, bool) or not isinstance(value, expected):
                raise BadResult(f"{field.name}: {value!r} is of the wrong kind")
            if isinstance(value, str) and not value.strip():
                raise BadResult(f"{field.name}: must not be empty")
        if not self.seeds or not all(type(seed) is int for seed in self.seeds):
            raise BadResult(f"seeds: {list(self.seeds)}: must be whole numbers, at least one")
        if self.games < 1 or not 0 <= self.minutes < float("inf"):
            raise BadResult(f"games: {self.games}, minutes: {self.minutes}: must be at least 1, and a time")
        if not self.rows or not all(isinstance(row, dict) and row for row in self.rows):
            raise BadResult("rows: must be objects, at least one")
        for number, row in enumerate(self.rows):
            if row.keys() != self.rows[0].keys():
                odd = sorted(row.keys() ^ self.rows[0].keys())
                raise BadResult(f"rows[{number}]: has not the keys of rows[0]; only in one of them: {', '.join(odd)}")

    @classmethod
    def read(cls, file: Path) -> Result:
        """Read and check a file.

        Raises:
            BadResult: it is no result; the message names the file.
        """
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(data, dict):
                raise BadResult("the file must hold one object")
            known = {field.name for field in fields(cls)}
            if wrong := sorted(known ^ data.keys()):
                raise BadResult(f"missing or unknown: {', '.join(wrong)}")
            if not isinstance(data["seeds"], list):
                raise BadResult("seeds: must be a list")
            return cls(**{**data, "seeds": tuple(data["seeds"])})
        except ValueError as error:
            raise BadResult(f"{file}: {error}") from error

    def write(self, folder: Path) -> Path:
        """Write ``folder/<name>.json``, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.name}.json"
        # NaN is no JSON: a figure that could not be computed must not be written as if it had been
        write_whole(file, json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return file


def arms(result: Result) -> dict[str, list[str]]:
    """Of an experiment on learning: the arms' overrides, by name."""
    told: dict[str, list[str]] = result.settings["arms"]
    return told


def curves(result: Result) -> Iterator[tuple[str, str, list[dict[str, float]]]]:
    """Of an experiment on learning: arm, seed and points of every run."""
    for arm, seeds in result.figures["curves"].items():
        for seed, found in seeds.items():
            yield arm, seed, found["points"]


def command_line(module: str, overrides: Sequence[str]) -> str:
    """The command to type at the project's root."""
    return shlex.join(["python", "-m", module, *overrides])
