"""The report of one run, of the games that people played, or of an evaluation: everything that pages show, renewed by
what is new."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ...games.registry import NotNamed
from ...processes.launch import is_in_use
from ...processes.run_log import LOG
from ...storage.checkpoints import config_file, config_of
from ...storage.run_config import setting
from ..evaluation.matches.store import FILE
from .bundle import DATA, Bundle
from .curves import POINTS, SHOWN, Curves, since_start, thinned
from .evaluation_games import EvaluationGames, is_evaluation
from .evaluation_results import evaluations, folders, with_results
from .game_index import BLOCK, INVALID, OUTCOMES, SPLITS, Games, RunGames, Step

#: Of the report's data; another number makes a report anew.
FORM = 6
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


class RunReport:
    """A run's report, or an evaluation's, in ``folder``. A run's shows the evaluations that are found. ``named`` is as of
    ``games.make``.

    Raises:
        NoRun: ``run_dir`` is neither a run's folder nor an evaluation's.
        FileExistsError: in ``folder`` are data that no report has made.
    """

    def __init__(self, run_dir: Path, folder: Path, named: Sequence[str] = ()) -> None:
        evaluated = not is_run(run_dir)
        if evaluated and not is_evaluation(run_dir):
            raise NoRun(f"{run_dir}: no run is here, and no evaluation ({config_file(run_dir).name}, games/, {FILE})")
        self.run_dir, self.bundle = run_dir, Bundle(folder)
        # Not the path itself: a report may be sent to others.
        identity = "\0".join([str(run_dir.absolute()), *sorted(named)])
        self._identity = hashlib.sha256(identity.encode()).hexdigest()[:16]
        known = self._known()
        self._evaluation = EvaluationGames(run_dir) if evaluated else None
        records = self._evaluation or RunGames(run_dir / "games")
        self.games = Games(self.bundle, records, known.get("steps", {}), named)
        self.curves = Curves(run_dir)
        self._looked: Any = None

    def notes(self) -> list[str]:
        """What is not shown, and how to have it shown."""
        found: Counter[str] = Counter()
        for steps in self.games.steps.values():
            for facts in steps.values():
                found.update(facts["not_named"])
        return [f"{count} games of {game} have no boards: {NotNamed(game)}" for game, count in sorted(found.items())]

    def _known(self) -> Mapping[str, Any]:
        """What an earlier report has; another form's data, or another run's, are removed. Raises FileExistsError: the
        data there are no report's."""
        data = self.bundle.folder / DATA
        try:
            known = json.loads((data / _STATE).read_bytes())
            if (known["form"], known["run"]) == (FORM, self._identity):
                return dict(known)
        except OSError:
            return {}
        except (ValueError, KeyError, TypeError):
            pass
        if self.bundle.read("version") is None:
            raise FileExistsError(f"{data}: no report has made this; give another --out, or remove it")
        shutil.rmtree(data)
        return {}

    def renew(self) -> bool:
        """Take in what is new; returns whether there was anything."""
        self.bundle.begin()
        running = is_in_use(self.run_dir)
        read = 0
        for steps in self.games.renew():
            read += steps
            self._remember()
        places = with_results([self.run_dir]) if self._evaluation else folders(self.run_dir)
        looked = (running, [(str(place), (place / "results.json").stat().st_mtime_ns) for place in places])
        if not (self.curves.renew() | bool(read) | (looked != self._looked)):
            return False
        self._looked = looked
        self._write(running, places)
        return True

    def _remember(self) -> None:
        """What is in the report, for the next time; also if this one is interrupted."""
        known = {"form": FORM, "run": self._identity, "steps": self.games.steps}
        self.bundle.replace(self.bundle.folder / DATA / _STATE, json.dumps(known))

    def _write(self, running: bool, places: Sequence[Path]) -> None:
        bundle = self.bundle
        shown = {name: values for name, values in self.curves.values.items() if name.startswith(SHOWN)}
        evaluated = evaluations(self.run_dir, places)
        times = {"times": since_start(self.curves.times, POINTS)}
        bundle.write("curves", thinned(shown) | times)
        bundle.write("games", self._catalogue())
        bundle.write("evaluation", evaluated)
        bundle.write("run", self._facts(running))
        # Last, and alone: pages look at it to see whether there is anything new.
        bundle.write("version", {"version": time.time_ns() // 1_000_000, "running": running})

    def _catalogue(self) -> dict[str, Any]:
        """Where the games are, newest steps first, and what can be looked for."""
        blocks: list[list[Any]] = []
        games: set[str] = set()
        opponents: set[str] = set()
        policies: set[str] = set()
        for split in SPLITS:
            steps = self.games.steps[split]
            for number in sorted({step // BLOCK for step in steps}, reverse=True):
                within = [step for step in steps if step // BLOCK == number]
                blocks.append([split, number, min(within), max(within), sum(steps[step]["games"] for step in within)])
            for facts in steps.values():
                for policy, _, opponent, game, *_ in facts["results"]:
                    policies.add(policy)
                    opponents.add(opponent)
                    games.add(game)
        names = {"policies": sorted(policies), "games": sorted(games), "opponents": sorted(opponents)}
        return {"blocks": blocks, **names, "outcomes": OUTCOMES, "invalid": INVALID}

    def _facts(self, running: bool) -> dict[str, Any]:
        steps = self.games.steps
        count = {split: sum(facts["games"] for facts in steps[split].values()) for split in SPLITS}
        logged, trained = self.curves.times, self.curves.values.get("games/count")
        people = steps["human"] and not (steps["train"] or steps["val"] or logged)
        kind = "evaluation" if self._evaluation else "people" if people else "run"
        config, log = config_of(self.run_dir), self.run_dir / LOG
        total = setting(config, "trainer.total_training_steps")
        settings = {key: value for key in _SETTINGS if (value := setting(config, key)) is not None}
        return {
            "name": self.run_dir.absolute().name,
            "running": running,
            "step": max([*steps["train"], *logged], default=0),
            "total": total if isinstance(total, int) else None,
            "games": count,
            # Not the records: they have what was left out, and may be of some steps only.
            "trained": round(sum(value or 0 for value in trained.values())) if trained else count["train"],
            "broken": sum(facts["broken"] for split in SPLITS for facts in steps[split].values()),
            "notes": self.notes(),
            "started": min(logged.values(), default=None),
            "latest": max(logged.values(), default=None),
            "kind": kind,
            "by_checkpoint": bool(self._evaluation and self._evaluation.follows),
            "results": [] if kind == "run" else _counted(steps["eval" if kind == "evaluation" else "human"]),
            "asks_questions": setting(config, "data.custom_cls.name") == "QuestionDataset",
            "settings": settings,
            "last_lines": log.read_text("utf-8", "replace").splitlines()[-12:] if log.is_file() else [],
        }


def _counted(steps: Mapping[int, Step]) -> list[list[Any]]:
    """[policy or person, game, opponent, its role, wins, draws, losses, games that it ended by an invalid answer]."""
    found: Counter[tuple[str, str, str, int, int]] = Counter()
    for facts in steps.values():
        for policy, _, opponent, game, role, *results in facts["results"]:
            found.update({(policy, game, opponent, role, place): count for place, count in enumerate(results)})
    groups = sorted({key[:4] for key in found})
    return [[*group, *(found[*group, place] for place in range(4))] for group in groups]
