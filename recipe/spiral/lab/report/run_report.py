"""The report of one run, of the games that people played, or of an evaluation: everything that pages show, renewed by
what is new."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...games.registry import NotNamed
from ...processes.launch import is_in_use
from ...processes.run_log import LOG
from ...storage.checkpoints import config_file, config_of
from ...storage.run_config import CHANGES, setting
from ..evaluation.evaluation_folder import GAMES
from .bundle import DATA, Bundle
from .curves import Curves
from .evaluation_games import EvaluationGames, is_evaluation
from .evaluation_results import evaluations, folders, with_results
from .game_index import COUNTED, INVALID, OUTCOMES, SPLITS, Games, RunGames
from .inside import is_inside

#: Of the report's data; another number makes a report anew.
FORM = 8
_STATE = "state.json"
#: The report's folder in a run's, unless the user gives another.
REPORT = "report"
#: Settings that the overview shows.
_SETTINGS = (
    *("games", "model", "actor_rollout_ref.model.path", "seed", "data.train_batch_size", "batch_unit"),
    *("actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.actor.use_kl_loss", "algorithm.adv_estimator"),
    *("algorithm.rae.decay", "fsp.enabled", "prompt.template", "data.max_response_length", "hardware"),
)


class NoRun(ValueError):
    """There is nothing of a run in the folder."""


def is_run(folder: Path) -> bool:
    """Whether there is anything of a run that a report could be of; another program has a ``config.yaml``, too."""
    file = config_file(folder)
    return (folder / "games").is_dir() or (file.is_file() and b"\ntrainer:" in b"\n" + file.read_bytes())


def last_lines(file: Path, most: int = 12, size: int = 20_000) -> list[str]:
    """The last lines of a text, of which no more is read than these may have."""
    with file.open("rb") as text:
        text.seek(max(0, file.stat().st_size - size))
        return text.read().decode("utf-8", "replace").splitlines()[-most:]


def _changes(run_dir: Path) -> Iterator[tuple[int, str, Any, Any]]:
    """(step, setting, its value until that step, its value from there on), as later starts of the run changed them."""
    file = run_dir / CHANGES
    lines = file.read_text("utf-8", "replace").splitlines() if is_inside(run_dir, file) else []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            entry = json.loads(line)
            yield from ((int(entry["step"]), key, was, now) for key, (was, now) in entry["changed"].items())


class RunReport:
    """A run's report, or an evaluation's, in ``folder``. A run's shows its evaluations. ``named`` is as of
    ``games.make``.

    Raises:
        NoRun: ``run_dir`` is neither a run's folder nor an evaluation's.
        FileExistsError: in ``folder`` are data that no report has made.
    """

    def __init__(self, run_dir: Path, folder: Path, named: Sequence[str] = ()) -> None:
        evaluated = not is_run(run_dir)
        if evaluated and not is_evaluation(run_dir):
            raise NoRun(f"{run_dir}: no run is here, and no evaluation ({config_file(run_dir).name}, games/, {GAMES})")
        self.run_dir, self.bundle = run_dir, Bundle(folder)
        # Not the path itself: a report may be sent to others.
        identity = "\0".join([str(run_dir.absolute()), *sorted(named)])
        self._identity = hashlib.sha256(identity.encode()).hexdigest()[:16]
        self._forget_others()
        self._evaluation = EvaluationGames(run_dir) if evaluated else None
        records = self._evaluation or RunGames(run_dir / "games")
        self.games = Games(self.bundle, records, named)
        self.curves = Curves(run_dir)
        self._looked: Any = None

    def notes(self) -> list[str]:
        """What is not shown, and how to have it shown."""
        found = sum((block.not_named for block in self.games.blocks.values()), Counter[str]())
        return [f"{count} games of {game} have no boards: {NotNamed(game)}" for game, count in sorted(found.items())]

    def _forget_others(self) -> None:
        """Remove what an earlier report has in another form, or of another run. Raises FileExistsError: the data there
        are no report's."""
        data = self.bundle.folder / DATA
        try:
            if json.loads((data / _STATE).read_bytes()) == self._mark():
                return
        except OSError:
            return
        except ValueError:
            pass
        if self.bundle.read("version") is None:
            raise FileExistsError(f"{data}: no report has made this; give another --out, or remove it")
        shutil.rmtree(data)

    def _mark(self) -> dict[str, Any]:
        return {"form": FORM, "run": self._identity}

    def renew(self) -> bool:
        """Take in what is new; returns whether there was anything."""
        self.bundle.begin()
        running = is_in_use(self.run_dir)
        self.bundle.replace(self.bundle.folder / DATA / _STATE, json.dumps(self._mark()))
        read = sum(self.games.renew())
        places = with_results([self.run_dir]) if self._evaluation else folders(self.run_dir)
        looked = (running, [(str(place), (place / "results.json").stat().st_mtime_ns) for place in places])
        if not (self.curves.renew() | bool(read) | (looked != self._looked)):
            return False
        self._looked = looked
        self._write(running, places)
        return True

    def _write(self, running: bool, places: Sequence[Path]) -> None:
        bundle = self.bundle
        bundle.write("curves", self.curves.shown())
        bundle.write("games", self._catalogue())
        bundle.write("evaluation", evaluations(places))
        bundle.write("run", self._facts(running))
        # Last, and alone: pages look at it to see whether there is anything new.
        bundle.write("version", {"version": time.time_ns() // 1_000_000, "running": running})

    def _catalogue(self) -> dict[str, Any]:
        """Where the games are, newest steps first, and what can be looked for."""
        known = self.games.blocks
        blocks = [
            [split, number, known[split, number].first, known[split, number].last, known[split, number].games]
            for split, number in sorted(known, key=lambda key: (SPLITS.index(key[0]), -key[1]))
        ]
        groups = {group for block in known.values() for group in block.results}
        names = {
            name: sorted({group[place] for group in groups})
            for name, place in (("policies", 0), ("opponents", 2), ("games", 3))
        }
        return {"blocks": blocks, **names, "outcomes": OUTCOMES, "invalid": INVALID}

    def _facts(self, running: bool) -> dict[str, Any]:
        blocks = self.games.blocks
        count = {split: sum(block.games for (of, _), block in blocks.items() if of == split) for split in SPLITS}
        trained = self.curves.total("games/count")
        people = count["human"] and not (count["train"] or count["val"] or self.curves.latest)
        kind = "evaluation" if self._evaluation else "people" if people else "run"
        config = config_of(self.run_dir) if is_inside(self.run_dir, config_file(self.run_dir)) else None
        total = setting(config, "trainer.total_training_steps")
        changes = list(_changes(self.run_dir))
        keys = dict.fromkeys([*_SETTINGS, *(key for _, key, *_ in changes)])
        settings = {key: value for key in keys if (value := setting(config, key)) is not None}
        return {
            "name": self.run_dir.absolute().name,
            "running": running,
            "step": max([self.curves.step, *(block.last for (of, _), block in blocks.items() if of == "train")]),
            "total": total if isinstance(total, int) else None,
            "games": count,
            # Not the records: they have what was left out, and may be of some steps only.
            "trained": count["train"] if trained is None else round(trained),
            "broken": sum(block.broken for block in blocks.values()),
            "notes": self.notes(),
            "started": self.curves.first,
            "latest": self.curves.latest,
            "kind": kind,
            "results": [] if kind == "run" else self._counted("eval" if kind == "evaluation" else "human"),
            "asks_questions": setting(config, "data.custom_cls.name") == "QuestionDataset",
            "settings": settings,
            "changes": changes,
            "last_lines": last_lines(self.run_dir / LOG) if is_inside(self.run_dir, self.run_dir / LOG) else [],
        }

    def _counted(self, split: str) -> list[list[Any]]:
        """[policy or person, game, opponent, its role, wins, draws, losses, games ended by its invalid answer]."""
        found: Counter[tuple[str, str, str, int, str]] = Counter()
        for (of, _), block in self.games.blocks.items():
            if of == split:
                for (policy, _, opponent, game, role, what), count in block.results.items():
                    found[policy, game, opponent, role, what] += count
        groups = sorted({key[:4] for key in found})
        return [[*group, *(found[*group, what] for what in COUNTED)] for group in groups]
