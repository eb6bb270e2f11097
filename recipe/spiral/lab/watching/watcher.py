"""Watches a training: the guard looks at its metrics, ages of games, void games and costs are counted, and trackers get
games."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import extensions
from ...opponents.fixed_opponents import parse_opponents
from ...players.records import GameRecord
from ...rollouts.schedule import parse_games, plays_games
from ..opponents import API
from ..opponents.api_costs import COSTS, Costs
from .guard import Guard
from .reasoning import reasoning_metrics
from .run_summary import summary
from .staleness import staleness_metrics
from .tracked_games import log_games, log_lengths
from .void_games import VoidGames, void_games


class Watcher(extensions.Watcher):
    """By the config's ``guard`` and ``trainer``."""

    def __init__(self, config: Any) -> None:
        self._config, trainer = config, config.trainer
        self._guard = Guard(config.guard)
        self._action = config.guard.action
        self._asynchronous = trainer.v1.trainer_mode != "sync"
        self._reasoning_chars = config.guard.reasoning_chars
        #: Of the step's games.
        self._metrics: dict[str, float] = {}
        self._voids = VoidGames(config.max_void_steps)
        self._endpoints = [each.name for each in parse_opponents(config.opponents) if each.kind == API]
        self._spent = Costs(Path(config.run_dir) / COSTS)
        self._samples = int(trainer.log_val_generations)

    def games(
        self,
        trackers: Mapping[str, Any],
        split: str,
        step: int,
        records: Sequence[GameRecord],
        discarded: Sequence[GameRecord],
        file: str,
    ) -> list[str]:
        log_lengths(trackers, split, step, records)
        if split == "train":
            self._metrics = self._of_games(step, records, discarded)
        if split == "val":
            log_games(trackers, step, [*records, *discarded], self._samples, file)
        played = [*records, *discarded]
        if split == "val":
            return [f"validation at step {step}: {line}" for line in void_games(played).values()]
        return [f"opponents: in step {step} {line}" for line in self._voids.count(played)]

    def _of_games(self, step: int, records: Sequence[GameRecord], discarded: Sequence[GameRecord]) -> dict[str, float]:
        metrics = reasoning_metrics(records, self._reasoning_chars)
        if not self._asynchronous:
            return metrics
        dropped = [record for record in discarded if record.discarded == "stale"]
        return metrics | staleness_metrics(records, dropped, step)

    def step(self, metrics: dict[str, float]) -> list[str]:
        metrics |= self._metrics | self._costs()
        self.stop = self._voids.silent
        if self._action not in ("warn", "stop"):
            return []
        alarms = self._guard.look(metrics)
        metrics |= self._guard.metrics()
        if alarms and self._action == "stop":
            self.stop = f"guard.action=stop: {'; '.join(alarms)}"
            self._guard.rest()
        return [f"guard: {alarm}" for alarm in alarms]

    def _costs(self) -> dict[str, float]:
        """``opponents/{name}/tokens`` and ``usd``: what endpoints have cost in the whole run."""
        spent = {name: self._spent.of(name) for name in self._endpoints}
        used = {f"opponents/{name}/tokens": float(tokens) for name, (tokens, _) in spent.items()}
        return used | {f"opponents/{name}/usd": dollars for name, (_, dollars) in spent.items()}

    def finish(self) -> list[str]:
        config = self._config
        game = parse_games(config.games)[0].id if plays_games(config) else None
        return summary(Path(config.run_dir), Path(config.trainer.default_local_dir), game)

    def state_dict(self) -> dict[str, Any]:
        return self._guard.state_dict() | {"voids": self._voids.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._guard.load_state_dict(state)
        self._voids.load_state_dict(state.get("voids", {}))
