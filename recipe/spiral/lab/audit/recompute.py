"""A run's settings, and baselines that are computed a second time from its records.

What ``rae.py`` computes is written here again on purpose: an audit that called the trainer's functions would repeat
their mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from omegaconf import OmegaConf

from ...games import id_of
from ...match import Rules
from ...players.records import SELF_PLAY, GameRecord
from ...rollouts.schedule import GameShare, parse_games
from ...storage.run_files import config_file, load_config
from ...training.credit import Filters

#: Of games: more than any step has, and few enough to be counted.
MOST = 2**20


class NothingToAudit(ValueError):
    """The folder is no run, or has no games; the message says what is missing."""


class Settings:
    """The settings that decide which games a run plays and what they are trained with.

    They are read one by one from the run's last start, as Hydra kept them, because other keys need resolvers and an
    environment that only a run has.

    Args:
        named: the classes of games (``module:Class``) that may be imported.

    Raises:
        NothingToAudit: there is no config, or it is not one of our runs'.
    """

    def __init__(self, run_dir: Path, named: Sequence[str] = ()) -> None:
        self.named = named
        file = config_file(run_dir)
        if not file.is_file():
            raise NothingToAudit(f"{run_dir}: no run is here: there is no {file.name}")
        try:
            self._read(load_config(file))
        except Exception as error:  # it may hold anything
            raise NothingToAudit(f"{file}: {str(error).removeprefix(f'{file}: ')}") from error

    def _read(self, config: Any) -> None:
        algorithm, data, rae = config.algorithm, config.data, config.algorithm.rae
        self.seed = int(config.seed)
        self.records_every = int(config.records.every)
        self.synchronous = config.trainer.v1.trainer_mode == "sync"
        self.max_staleness: int | None = config.asynchronous.max_staleness
        #: Responses to each question; 0: games were trained on.
        self.responses = int(config.actor_rollout_ref.rollout.n) if data.custom_cls.name == "QuestionDataset" else 0
        games = [] if self.responses else OmegaConf.to_container(config.games, resolve=True)
        self.shares: list[GameShare] = [] if self.responses else parse_games(games, find=id_of)
        self.random_openings = {share.id: share.random_opening for share in self.shares}
        #: Whether games are played on from some of their states, by keys of further tries.
        self.branches = int(config.branching.states) > 0
        self.games_per_start = int(data.games_per_start)
        #: Of a step, or where ``in_turns`` the least number of its turns. In the asynchronous modes so many games share
        #: a key's step.
        self.batch_size = int(data.train_batch_size) * self.games_per_start * max(self.responses, 1)
        self.in_turns = config.batch_unit == "turns"
        if not 0 < self.games_per_start <= self.batch_size <= MOST:
            raise ValueError(f"data: the number of games is below 1, or above {MOST}")
        self.draw_retries = int(config.draw_retry.max_retries) if config.draw_retry.enabled else 0
        self.rules = Rules.from_config(config.rules)
        self.filters = Filters.from_config(config)
        self.estimator = str(algorithm.adv_estimator)
        self.gamma, self.reward_scale = float(algorithm.gamma), float(algorithm.reward_scale)
        self.kl_in_reward = bool(algorithm.use_kl_in_reward)
        self.by_deviation = bool(algorithm.norm_adv_by_std_in_grpo)
        self.by_opponent, self.update = bool(rae.by_opponent), str(rae["update"])
        self.decay, self.initial = float(rae.decay), float(rae.initial) if rae.baseline else 0.0
        #: Whether baselines are RAE's moving averages, and whether they are the means of groups.
        self.moving = self.estimator == "rae" and bool(rae.baseline)
        self.grouped = self.estimator == "grpo_role"
        #: Whether verl's trainer may have rejected turns, or single tokens.
        self.rejects = algorithm.rollout_correction.rollout_rs is not None

    @property
    def advantages_follow(self) -> bool:
        """Whether advantages follow from outcomes. verl's own estimators and a KL penalty need what no record holds."""
        return (self.estimator == "rae" or self.grouped) and not self.kl_in_reward


class Baselines:
    """The baselines of outcomes: RAE's moving averages, or the means of the games that start from the same state.

    Attributes:
        values: RAE's baselines, by (game, role, kind of opponent).
        from_start: whether all games so far are known, so that a role without a value has the initial one. Otherwise a
            value is taken from the first record that has it, and moves on from there.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.values: dict[tuple[str, int, str], float] = {}
        self.from_start = True
        self._groups: dict[tuple[object, int], list[float]] = {}

    def forget(self) -> None:
        """Games are missing or wrong here, so the values are not known any more."""
        if self.settings.moving:
            self.values.clear()
            self.from_start = False

    def before(self, games: Iterable[GameRecord]) -> None:
        """Look at the games of a batch before any of their baselines is asked for."""
        self._groups = defaultdict(list)
        for record in games:
            for role in record.trainable:
                self._groups[record.key.start(), role].append(record.rewards[role])
                recorded = record.baselines[role]
                if not self.from_start and recorded is not None:
                    self.values.setdefault(self._place(record, role), recorded)

    def after(self, games: Iterable[GameRecord]) -> None:
        """Move by the games of a batch, in the order of their keys."""
        if not self.settings.moving:
            return
        outcomes = defaultdict(list)
        for record in sorted(games, key=lambda record: record.key):
            for role in record.trainable:
                outcomes[self._place(record, role)].append(record.rewards[role])
        decay = self.settings.decay
        for place, rewards in outcomes.items():
            for reward in rewards if self.settings.update == "game" else [fmean(rewards)]:
                self.values[place] = decay * self.get(*place) + (1 - decay) * reward

    def get(self, game: str, role: int, opponent: str = SELF_PLAY) -> float:
        """RAE's current value."""
        return self.values.get((game, role, opponent), self.settings.initial)

    def of(self, record: GameRecord, role: int) -> float | None:
        """The baseline b of a trainable player in the present batch; None for verl's own estimators."""
        if self.settings.estimator == "rae":
            return self.get(*self._place(record, role))
        return fmean(self._groups[record.key.start(), role]) if self.settings.grouped else None

    def scale(self, record: GameRecord, role: int) -> float:
        """The factor of R - b."""
        outcomes = self._groups[record.key.start(), role]
        divided = self.settings.grouped and self.settings.by_deviation and len(outcomes) > 1
        return self.settings.reward_scale / (stdev(outcomes) + 1e-6 if divided else 1.0)

    def _place(self, record: GameRecord, role: int) -> tuple[str, int, str]:
        return record.game, role, record.opponent if self.settings.by_opponent else SELF_PLAY
