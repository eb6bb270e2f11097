"""The only seam: what may be added to a training, and where it is asked for.

``extensions`` in the config names modules. Each has a class ``Extension``, a subclass of the one here, and every
process of a run makes those that it asks. Ours are ``lab.extension`` (exact metrics, the guard, dry runs, opponents
that are no past selves) and ``spin.extension`` (DPO on pairs, questions). Somebody else's is used in the same way; see
docs/architecture.md. Their settings are in folders of their own: ``lab/config``, ``spin/config``.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from .players.player import Player
    from .players.records import GameRecord

#: The environment variable that tells a run's processes the modules' names, with commas between them.
NAMES = "SPIRAL_EXTENSIONS"


class Measured(NamedTuple):
    """The exact metrics of a validation, and a line for people about each game."""

    metrics: dict[str, float]
    lines: list[str]


class Chosen(Protocol):
    """The rows that an objective trains on."""

    @property
    def keys(self) -> Sequence[tuple[str, ...]]:
        """The names of rows that stay side by side, in their order."""

    def mark(self, keys: Sequence[str]) -> None:
        """Be ready for verl to ask the objective's estimator for the advantages of these rows, padding among them."""

    def metrics(self, partition: str) -> dict[str, float]:
        """Of the rows, which have their log-probabilities by now in TransferQueue's partition; after the step's own."""


class Objective(Protocol):
    """A loss that is not the policy gradient of single turns."""

    together: int  # so many rows, one after the other, make a unit
    batch_info: dict[str, Any]  # what the workers are told with each batch

    def choose(self, rows: Any) -> Chosen:
        """What is trained of a step's ``training.rows.Rows``; all other turns say why they are left out."""

    def line(self, metrics: Mapping[str, float]) -> str:
        """A part of a step's line on the console; ends with two blanks."""


class ObjectiveKind(NamedTuple):
    """An objective, made from the config in the trainer; and what wraps verl's loss function of a micro-batch in the
    policy's workers, also where the objective is not used."""

    make: Callable[[Any], Objective]
    wrap_loss: Callable[[Callable[..., Any]], Callable[..., Any]]


class Kind(NamedTuple):
    """A kind of opponent that does not learn and has no weights here.

    Attributes:
        make: a player, from the settings of its entry in the config by their names; it serves all games of a process.
            Where it takes ``run_dir``, that is the run's folder, and None where no game is played. A ``ValueError``
            says what is wrong with the settings, an ``ImportError`` which package is not installed.
        check_game: a ``ValueError`` if it cannot play the game of this id.
    """

    make: Callable[..., Player]
    check_game: Callable[[str], object]


class Watcher:
    """Watches a training; this one sees nothing."""

    #: Why the run is to end after this step; "": it is not.
    stop: str = ""

    def games(
        self,
        trackers: Mapping[str, Any],
        split: str,
        step: int,
        records: Sequence[GameRecord],
        discarded: Sequence[GameRecord],
        file: str,
    ) -> list[str]:
        """The games of a step (``split`` "train") or of a validation ("val"), before its metrics are logged; returns
        lines for people. ``trackers`` are those of verl's ``Tracking``, by name; records lie in the run's ``file``."""
        return []

    def step(self, metrics: dict[str, float]) -> list[str]:
        """A step's metrics, to which it may add; returns lines for people, which are shown after the step's."""
        return []

    def finish(self) -> list[str]:
        """The training is over; returns lines for people."""
        return []

    def state_dict(self) -> dict[str, Any]:
        """For the checkpoint, as JSON takes it; all watchers' go into one mapping."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a checkpoint; {}: from none."""


class Extension:
    """Adds nothing: override what is to be added."""

    def check(self, config: Any) -> None:
        """Set what follows from other settings, and look at them, without torch and verl. A ValueError or ImportError
        refuses them in one line, and a SystemExit ends the start without a word."""

    def agent_loops(self, config: Any) -> Mapping[str, str]:
        """Agent loops: what rows call them (``agent_name``), and their classes' paths; ``spiral_game`` plays games."""
        return {}

    def opponents(self) -> Mapping[str, Kind]:
        """Opponents that do not learn, by kind; in every process that checks, plays or trains."""
        return {}

    def objectives(self) -> Mapping[str, ObjectiveKind]:
        """What may train in place of the policy gradient, by ``algorithm.adv_estimator``."""
        return {}

    def watcher(self, config: Any) -> Watcher | None:
        """What watches the training; None: nothing."""

    def validate(self, config: Any, tokenizer: Any, workers: Any) -> Callable[[], Measured] | None:
        """What measures the policy itself at each validation; None: nothing is asked for.

        ``workers.on_each_rank(function, *args)`` calls ``function(worker, *args)`` on each rank of the policy.
        """


def choose(config: Any, say: Callable[[str], None]) -> tuple[Extension, ...]:
    """Make those that the config names the ones of this run. ``say`` is told which of ours are not there. Raises
    ImportError or AttributeError: another one is not there."""
    there = []
    for name in config.extensions:
        parts = name.split(".")
        if parts[:2] == ["recipe", "spiral"] and not (Path(__file__).parent / parts[2]).is_dir():
            say(f"extensions: {name} is not there; the run goes without what it adds")
        else:
            there.append(name)
    os.environ[NAMES] = ",".join(there)
    return loaded()


def loaded() -> tuple[Extension, ...]:
    """Those of this run, in this process."""
    return tuple(map(_made, filter(None, os.environ.get(NAMES, "").split(","))))


def objectives() -> dict[str, ObjectiveKind]:
    """What may train in place of the policy gradient, by ``algorithm.adv_estimator``."""
    return {name: kind for extension in loaded() for name, kind in extension.objectives().items()}


@cache
def _made(name: str) -> Any:
    return importlib.import_module(name).Extension()
