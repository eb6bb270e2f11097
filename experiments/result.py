"""What an experiment leaves behind: a JSON file with its figures and how they came about."""

from __future__ import annotations

import hashlib
import json
import shlex
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from experiments.curve_points import Point
from recipe.spiral.storage.disk import write_whole

ROOT = Path(__file__).resolve().parents[1]
#: In a run's folder: the commits whose code has trained the run, in their order.
COMMITS = "commits.json"


class BadResult(ValueError):
    """A file is not a valid result file; the message says where, and what is wrong."""


@dataclass(frozen=True)
class Result:
    """An experiment's result.

    Attributes:
        name: the experiment's name, which also names its files.
        title: one line that says what was asked.
        command: the command that ran it, from the project's root.
        commit: the code that played the games; several commits, with ", " between them, if runs had different code or
            were resumed by other code; "unknown" for runs that do not say.
        seeds: each is a repetition.
        games: how many were played in all.
        minutes: the time that its runs took, one after the other.
        settings: the config.
        rows: the table; every row has the same keys.
        figures: all other figures of the page.
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
        for key in fields(self):
            value, expected = getattr(self, key.name), kinds.get(key.name, (str, dict)[key.name == "figures"])
            if isinstance(value, bool) or not isinstance(value, expected):
                raise BadResult(f"{key.name}: {value!r} is of the wrong kind")
            if isinstance(value, str) and not value.strip():
                raise BadResult(f"{key.name}: must not be empty")
        if not self.seeds or not all(type(seed) is int for seed in self.seeds):
            raise BadResult(f"seeds: {list(self.seeds)}: must be whole numbers, at least one")
        if self.games < 1 or not 0 <= self.minutes < float("inf"):
            raise BadResult(f"games: {self.games}, minutes: {self.minutes}: must be at least 1, and a time")
        if not self.rows or not all(isinstance(row, dict) and row for row in self.rows):
            raise BadResult("rows: must be objects, at least one")
        for number, row in enumerate(self.rows):
            if row.keys() != self.rows[0].keys():
                odd = sorted(row.keys() ^ self.rows[0].keys())
                raise BadResult(f"rows[{number}]: its keys differ from those of rows[0]: {', '.join(odd)}")

    @classmethod
    def read(cls, file: Path) -> Result:
        """Read and check a result file.

        Raises:
            BadResult: it is not valid; the message names the file.
        """
        try:
            data = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(data, dict):
                raise BadResult("the file must hold one object")
            if wrong := sorted({key.name for key in fields(cls)} ^ data.keys()):
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
        # JSON has no NaN: a figure that could not be computed must not be written as if it had been
        write_whole(file, json.dumps(asdict(self), indent=1, ensure_ascii=False, allow_nan=False) + "\n")
        return file


@dataclass(frozen=True)
class Curve:
    """What was measured of one training run.

    Attributes:
        points: the measured steps, in their order.
        last: further measures of the last step, by name.
        average: NashConv of the average of the policies measured after the start, by game; empty where not measured.
        seconds: how long training took.
        policy: the last policy, where the game is small: for each information set ("K after [check], [bet]") the
            probabilities of the legal actions. The rest to 1 is the probability of an illegal answer. Empty where the
            policy table was not read.
        model: the digest of the weights that training started from (``weights_digest``); "" where it is not known.
    """

    points: list[Point]
    last: dict[str, float]
    average: dict[str, float]
    seconds: float
    policy: dict[str, dict[str, float]] = field(default_factory=dict)
    model: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Curve:
        return cls(**{**data, "points": [Point(**point) for point in data["points"]]})


def arms(result: Result) -> dict[str, list[str]]:
    """The overrides of each arm of an experiment on learning, by the arm's name."""
    overrides: dict[str, list[str]] = result.settings["arms"]
    return overrides


def runs(result: Result) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Arm, seed and measurements of every run of an experiment on learning."""
    for arm, seeds in result.figures["curves"].items():
        for seed, run in seeds.items():
            yield arm, seed, run


def command_line(module: str, overrides: Sequence[str]) -> str:
    """The command to type at the project's root."""
    return shlex.join(["python", "-m", module, *overrides])


def weights_digest(model: str | Path) -> str:
    """A digest of a model folder's safetensors; "" where there are none."""
    files = sorted(Path(model).glob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() if files else ""


def add_commit(folder: Path, commit: str, anew: bool = False) -> None:
    """Note that a commit's code has worked in a folder; ``anew``: the work of earlier commits there is gone."""
    known = [] if anew else _read_commits(folder)
    if commit not in known:
        write_whole(folder / COMMITS, json.dumps([*known, commit]) + "\n")


def commits_of(folders: Iterable[Path]) -> list[str]:
    """The commits that have worked in these folders, each once; "unknown" for a folder that does not say."""
    return list(dict.fromkeys(commit for folder in folders for commit in _read_commits(folder) or ["unknown"]))


def current_commit(root: Path = ROOT) -> str:
    """The commit that ``root`` is at; "unknown" where git does not say.

    It ends in "-modified" if ``recipe`` or ``config``, which decide results, differ from the commit.
    """
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        return f"{head}-modified" if _git(root, "status", "--porcelain", "--", "recipe", "config") else head
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _read_commits(folder: Path) -> list[str]:
    try:
        known: list[str] = json.loads((folder / COMMITS).read_text(encoding="utf-8"))
    except OSError:
        return []
    return known


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
