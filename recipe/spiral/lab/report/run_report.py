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

from ...storage.disk import is_in_use, read_json
from ...storage.run_files import CHANGES, config_file, config_of, setting
from ..evaluation.benchmark_questions import PAPER, PAPER_AVERAGES
from ..evaluation.evaluation_folder import GAMES
from ..evaluation.results import RESULTS
from ..record_folder import NotNamed
from .bundle import DATA, Bundle, is_inside
from .curves import Curves
from .game_index import COUNTED, INVALID, OUTCOMES, SPLITS, EvaluationGames, Games, RunGames

#: Of the report's data; another number makes a report anew.
FORM = 9
#: The report's folder in a run's, unless the user gives another.
REPORT = "report"
#: Settings that the overview shows.
_SETTINGS = (
    *("games", "model", "actor_rollout_ref.model.path", "seed", "data.train_batch_size", "batch_unit"),
    *("actor_rollout_ref.actor.optim.lr", "actor_rollout_ref.actor.use_kl_loss", "algorithm.adv_estimator"),
    *("algorithm.rae.decay", "fsp.enabled", "prompt.template", "data.max_response_length", "hardware"),
)
#: The parts of ``results.json`` that pages show.
_PARTS = ("results", "ratings", "exploitability", "optimality", "benchmarks", "notes")


class RunReport:
    """A run's report, or an evaluation's, in ``folder``. ``named`` is as of ``make_named``.

    Raises:
        ValueError: ``run_dir`` is neither a run's folder nor an evaluation's.
        FileExistsError: in ``folder`` are data that no report has made.
    """

    def __init__(self, run_dir: Path, folder: Path, named: Sequence[str] = ()) -> None:
        self._is_run = is_run(run_dir)
        if not self._is_run and not is_inside(run_dir, run_dir / GAMES):
            raise ValueError(
                f"{run_dir}: no run is here, and no evaluation ({config_file(run_dir).name}, games/, {GAMES})"
            )
        self.run_dir, self.bundle = run_dir, Bundle(folder)
        # Not the path itself: a report may be sent to others.
        identity = "\0".join([str(run_dir.absolute()), *sorted(named)])
        self._mark = {"form": FORM, "run": hashlib.sha256(identity.encode()).hexdigest()[:16]}
        self._forget_others()
        records = RunGames(run_dir / "games") if self._is_run else EvaluationGames(run_dir)
        self.games = Games(self.bundle, records, named)
        self.curves = Curves(run_dir)
        self._looked: Any = None

    def _forget_others(self) -> None:
        """Remove the data of an earlier report that has another form, or is of another run."""
        data, before = self.bundle.folder / DATA, self.bundle.read("version")
        if before is None and data.exists():
            raise FileExistsError(f"{data}: no report has made this; give another --out, or remove it")
        if before is not None and not self._mark.items() <= before.items():
            shutil.rmtree(data)

    def notes(self) -> list[str]:
        """What is not shown, and how to have it shown."""
        found = sum((block.not_named for block in self.games.blocks.values()), Counter[str]())
        return [f"{count} games of {game} have no boards: {NotNamed(game)}" for game, count in sorted(found.items())]

    def renew(self) -> bool:
        """Take in what is new; returns whether there was anything."""
        self.bundle.begin()
        running = is_in_use(self.run_dir)
        if self._looked is None:
            self._write_version(0, running)
        results = self._results()
        looked = (running, results)
        if not (self.games.renew() | self.curves.renew() | (looked != self._looked)):
            return False
        self._looked = looked
        bundle = self.bundle
        bundle.write("curves", self.curves.shown())
        bundle.write("games", self._catalogue())
        bundle.write("evaluation", {**results, "paper": PAPER, "paper_averages": PAPER_AVERAGES})
        bundle.write("run", self._facts(running))
        # Last, and alone: pages look at it to see whether there is anything new.
        self._write_version(time.time_ns() // 1_000_000, running)
        return True

    def _results(self) -> dict[str, Any]:
        """An evaluation's results, as far as pages show them; none yet, if it goes on. ValueError: they are damaged."""
        file = self.run_dir / f"{RESULTS}.json"
        results = read_json(file) if not self._is_run and is_inside(self.run_dir, file) else {}
        return {part: results[part] for part in _PARTS if part in results}

    def _write_version(self, version: int, running: bool) -> None:
        self.bundle.write("version", {"version": version, "running": running, **self._mark})

    def _catalogue(self) -> dict[str, Any]:
        """Where the games are, newest steps first, and what can be looked for."""
        blocks = [
            [split, number, min(block.stamps), max(block.stamps), block.games]
            for (split, number), block in self.games.blocks.items()
            if block.stamps
        ]
        groups = {group for block in self.games.blocks.values() for group in block.results}
        columns = {"policies": 0, "games": 1, "opponents": 2}
        names = {name: sorted({group[place] for group in groups}) for name, place in columns.items()}
        return {
            "blocks": sorted(blocks, key=lambda block: (SPLITS.index(block[0]), -block[1])),
            **names,
            "outcomes": OUTCOMES,
            "invalid": INVALID,
        }

    def _facts(self, running: bool) -> dict[str, Any]:
        blocks = self.games.blocks
        count = {split: sum(block.games for (of, _), block in blocks.items() if of == split) for split in SPLITS}
        trained = self.curves.total("games/count")
        people = count["human"] and not (count["train"] or count["val"] or self.curves.latest)
        kind = "evaluation" if not self._is_run else "people" if people else "run"
        config = config_of(self.run_dir) if is_inside(self.run_dir, config_file(self.run_dir)) else None
        total = setting(config, "trainer.total_training_steps")
        changes = list(_changes(self.run_dir))
        keys = dict.fromkeys([*_SETTINGS, *(key for _, key, *_ in changes)])
        recorded = [step for (of, _), block in blocks.items() if of == "train" for step in block.stamps]
        return {
            "name": self.run_dir.absolute().name,
            "running": running,
            "step": max([self.curves.step, *recorded]),
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
            "settings": {key: value for key in keys if (value := setting(config, key)) is not None},
            "changes": changes,
        }

    def _counted(self, split: str) -> list[list[Any]]:
        """[policy or person, game, opponent, its role, wins, draws, losses, games ended by its invalid answer]."""
        found = sum((block.results for (of, _), block in self.games.blocks.items() if of == split), Counter[Any]())
        return [[*group, *(found[*group, what] for what in COUNTED)] for group in sorted({key[:4] for key in found})]


def is_run(folder: Path) -> bool:
    """Whether there is anything of a run that a report could be of; another program has a ``config.yaml``, too."""
    file = config_file(folder)
    return (folder / "games").is_dir() or (file.is_file() and b"\ntrainer:" in b"\n" + file.read_bytes())


def _changes(run_dir: Path) -> Iterator[tuple[int, str, Any, Any]]:
    """(step, setting, its value until that step, its value from there on), as later starts of the run changed them."""
    file = run_dir / CHANGES
    lines = file.read_text("utf-8", "replace").splitlines() if is_inside(run_dir, file) else []
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            entry = json.loads(line)
            yield from ((int(entry["step"]), key, was, now) for key, (was, now) in entry["changed"].items())
