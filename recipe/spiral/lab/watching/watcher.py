"""Watches a training: the guard looks at its metrics, ages of games, void games and costs are counted, and Weights &
Biases gets games."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import extensions
from ...opponents.fixed_opponents import parse_opponents
from ...players.records import SELF_PLAY, GameRecord
from ...players.seats import Opponent
from ...players.seeds import GameKey
from ...rollouts.schedule import parse_games, plays_games
from ..opponents import API
from ..opponents.api_costs import COSTS, Costs
from .game_metrics import reasoning_metrics, staleness_metrics
from .guard import Guard
from .shown import log_games, summary


class Watcher(extensions.Watcher):
    """By the config's ``guard``, ``max_void_steps`` and ``trainer``."""

    def __init__(self, config: Any) -> None:
        self._config = config
        self._guard = Guard(config.guard)
        #: Of the step's games.
        self._metrics: dict[str, float] = {}
        self._voids = VoidGames(config.max_void_steps)
        self._endpoints = [each.name for each in parse_opponents(config.opponents) if each.kind == API]
        self._spent = Costs(Path(config.run_dir) / COSTS)

    def games(
        self,
        trackers: Mapping[str, Any],
        split: str,
        step: int,
        records: Sequence[GameRecord],
        discarded: Sequence[GameRecord],
        file: str,
    ) -> list[str]:
        played, trainer = [*records, *discarded], self._config.trainer
        if split == "val":
            log_games(trackers, step, played, int(trainer.log_val_generations), file)
            return [f"validation at step {step}: {line}" for line in void_games(played).values()]
        self._metrics = reasoning_metrics(records, self._config.guard.reasoning_chars)
        if trainer.v1.trainer_mode != "sync":
            dropped = [record for record in discarded if record.discarded == "stale"]
            self._metrics |= staleness_metrics(records, dropped, step)
        return [f"opponents: in step {step} {line}" for line in self._voids.count(played)]

    def step(self, metrics: dict[str, float]) -> list[str]:
        metrics |= self._metrics | self._costs()
        self.stop, action = self._voids.silent, self._config.guard.action
        if action not in ("warn", "stop"):
            return []
        alarms = self._guard.look(metrics)
        metrics |= self._guard.metrics()
        if alarms and action == "stop":
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
        return self._guard.state_dict() | {"voids": dict(self._voids.steps)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._guard.load_state_dict(state)
        self._voids.steps = Counter(state.get("voids", {}))


class VoidGames:
    """Counts the steps in which an opponent answered in no game.

    Attributes:
        steps: how many in a row, by the opponent's name.
        silent: why the run is to stop: an opponent has answered in no game for ``most`` steps in a row in which some of
            its games were void; "": it is not.
    """

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.steps: Counter[str] = Counter()
        self.silent = ""

    def count(self, played: Sequence[GameRecord]) -> list[str]:
        """Take in a step's games; returns a line for each opponent with void ones.

        A game that the policy lost before it was the opponent's turn says nothing of the opponent.
        """
        answered = {
            Opponent.of(game).name for game in played if any(turn.player not in game.trainable for turn in game.turns)
        }
        for name in answered:
            self.steps.pop(name, None)
        lines = void_games(played)
        for name in lines.keys() - {*answered, SELF_PLAY}:
            self.steps[name] += 1
            if self._most is not None and self.steps[name] >= self._most:
                self.silent = f"max_void_steps={self._most}: {lines[name]}"
                del self.steps[name]  # a run that goes on after the stop has as many steps again
        return list(lines.values())


def void_games(records: Iterable[GameRecord]) -> dict[str, str]:
    """For people: how many of an opponent's games were void, and why the first was, by its name.

    Args:
        records: all tries of the games.
    """
    games: dict[str, set[GameKey]] = defaultdict(set)
    void: dict[str, dict[GameKey, str | None]] = defaultdict(dict)
    for record in records:
        name, key = Opponent.of(record).name, record.key.first_try()
        games[name].add(key)
        if record.discarded == "void":
            void[name].setdefault(key, record.reason)
    said = "{}: {} of its {} games were void, the first: {}"
    return {name: said.format(name, len(of), len(games[name]), next(iter(of.values()))) for name, of in void.items()}
