"""Baselines and advantages once more, from a run's settings and its outcomes.

What ``advantage.py`` and the trainer compute is written out here a second time on purpose: an audit that called the
trainer's functions would agree with their mistakes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ..match import Rules
from ..play.records import SELF_PLAY, GameRecord
from ..serving.schedule import GameShare, parse_games
from ..storage.checkpoints import config_file
from ..storage.renamed import load_config
from ..training.filters import Filters

_LOSS = "actor_rollout_ref.actor.policy_loss"


class NothingToAudit(ValueError):
    """The folder is no run, or has no games; the message says what is missing."""


@dataclass(frozen=True)
class Settings:
    """What of a run's config decides which games there are and what they are trained with."""

    seed: int
    shares: list[GameShare] | None  # None: a game needs a package that is not installed, and so cannot be looked up
    games_per_step: int | None  # None: as many as give turns_per_step
    turns_per_step: int
    games_per_start: int
    draw_retries: int
    rules: Rules
    estimator: str
    gamma: float
    reward_scale: float
    kl_in_reward: bool
    filters: Filters
    baseline: bool
    decay: float
    initial: float
    update: str
    by_opponent: bool
    by_deviation: bool
    rejects: bool  # verl's trainer may have rejected turns, or single tokens
    rejects_within: bool  # verl's loss may have, of which no record knows
    synchronous: bool
    records_every: int
    records_tokens: bool

    @property
    def advantages_follow(self) -> bool:
        """Whether advantages follow from outcomes: verl's own estimators and a KL penalty need what no record holds."""
        return self.estimator in ("rae", "grpo_role") and not self.kl_in_reward

    @classmethod
    def read(cls, run_dir: Path) -> Settings:
        """The settings of the run's last start, as Hydra kept them.

        Raises:
            NothingToAudit: there are none, or they are not those of a run of ours.
        """
        file = config_file(run_dir)
        try:
            # Plain keys are read one by one: others need resolvers and an environment that only a run has.
            config = load_config(file)
            algorithm, data, rae = config.algorithm, config.data, config.algorithm.rae
            return cls(
                seed=int(config.seed),
                shares=_shares(config),
                games_per_step=None if config.get("batch_unit") == "turns" else int(data.train_batch_size),
                turns_per_step=int(data.train_batch_size),
                games_per_start=int(data.get("games_per_start", 1)),
                draw_retries=_draw_retries(config),
                rules=Rules.from_config(config.rules),
                estimator=str(algorithm.adv_estimator),
                gamma=float(algorithm.gamma),
                reward_scale=float(algorithm.get("reward_scale", 1.0)),
                kl_in_reward=bool(algorithm.use_kl_in_reward),
                filters=Filters(
                    config.rules.truncated == "mask",
                    bool(algorithm.get("filter_draws", False)),
                    bool(algorithm.get("filter_zero_advantages", False)),
                ),
                baseline=bool(rae.get("baseline", True)),
                decay=float(rae.decay),
                initial=float(rae.initial),
                update=str(rae["update"]),
                by_opponent=bool(rae.get("by_opponent", True)),
                by_deviation=bool(algorithm.norm_adv_by_std_in_grpo),
                rejects=OmegaConf.select(config, "algorithm.rollout_correction.rollout_rs") is not None,
                rejects_within=OmegaConf.select(config, f"{_LOSS}.rollout_correction.rollout_rs") is not None,
                synchronous=config.trainer.v1.trainer_mode == "sync",
                records_every=int(config.records.every),
                records_tokens=bool(config.records.tokens),
            )
        except (OSError, YAMLError, OmegaConfBaseException, ValueError, TypeError, AttributeError, KeyError) as error:
            raise NothingToAudit(f"{file}: {' '.join(str(error).split())}") from error


def _draw_retries(config: Any) -> int:
    settings = config.get("draw_retry")
    return int(settings.max_retries) if settings is not None and settings.enabled else 0


def _shares(config: Any) -> list[GameShare] | None:
    try:
        return parse_games(OmegaConf.to_container(config.games))
    except ImportError:
        return None


class Baselines:
    """What outcomes are compared with: RAE's moving averages, or the means of the games that start from one state.

    Attributes:
        values: RAE's, by (game, role, kind of opponent).
        from_start: whether all games so far are known, so that a role without a value has the initial one. Otherwise
            its value is taken from the records where it first appears, and is carried on from there.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.values: dict[tuple[str, int, str], float] = {}
        self.from_start = True
        self._groups: dict[tuple[object, int], list[float]] = {}

    @property
    def move(self) -> bool:
        return self.settings.estimator == "rae" and self.settings.baseline

    def forget(self) -> None:
        """From here on it is not known which games there were."""
        if self.move:
            self.values.clear()
            self.from_start = False

    def before(self, games: Iterable[GameRecord]) -> None:
        """Look at the games of a batch before any of them is compared."""
        self._groups = defaultdict(list)
        for record in games:
            for role in record.trainable:
                self._groups[record.key.start(), role].append(record.rewards[role])
                recorded = record.baselines[role]
                if not self.from_start and recorded is not None:
                    self.values.setdefault(self._place(record, role), recorded)

    def after(self, games: Iterable[GameRecord]) -> None:
        """Move by the games of a batch, in the order of their keys."""
        if not self.move:
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
        """RAE's value now."""
        return self.values.get((game, role, opponent), self.settings.initial) if self.settings.baseline else 0.0

    def of(self, record: GameRecord, role: int) -> float | None:
        """b of a learner's game in the present batch; None for verl's own estimators."""
        if self.settings.estimator == "rae":
            return self.get(*self._place(record, role))
        return fmean(self._groups[record.key.start(), role]) if self.settings.estimator == "grpo_role" else None

    def _place(self, record: GameRecord, role: int) -> tuple[str, int, str]:
        """Which of RAE's values a game's outcome for a player is compared with, and moves."""
        return record.game, role, record.opponent if self.settings.by_opponent else SELF_PLAY

    def scale(self, record: GameRecord, role: int) -> float:
        """What R - b is multiplied by."""
        outcomes = self._groups[record.key.start(), role]
        if self.settings.estimator != "grpo_role" or not self.settings.by_deviation or len(outcomes) < 2:
            return self.settings.reward_scale
        return self.settings.reward_scale / (stdev(outcomes) + 1e-6)
