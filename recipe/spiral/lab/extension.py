"""What the lab adds to a training: opponents that are no past selves, exact metrics in validation, the guard, games for
trackers, the memory's estimate and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import extensions
from ..extensions import Budgets, Kind, Measured, Watcher


class Extension(extensions.Extension):
    def run(self, config: Any) -> int | None:
        """A dry run."""
        if not config.dry_run:
            return None
        from .planning.dry_run import dry_run

        return dry_run(config)

    def check(self, config: Any) -> None:
        from ..processes.as_written import refuse_environment
        from .opponents.budgets import API

        refuse_environment(config.opponents, "opponents", API)
        if _asks_exact(config):
            from .evaluation.exploitability import live_metrics

            live_metrics.check(config)
        if not config.dry_run:  # which asks nobody
            _ask_endpoints(config)

    def ready(self, config: Any, tokenizer: Any) -> None:
        from .planning.memory import check_memory
        from .watching.tracked_games import check_trackers

        check_trackers(config.trainer)
        check_memory(config)

    def summary(self, config: Any) -> str:
        from ..rollouts.schedule import parse_games, plays_games
        from .run_summary import summary

        game = parse_games(config.games)[0].id if plays_games(config) else None
        return summary(Path(config.run_dir), Path(config.trainer.default_local_dir), game)

    def opponents(self) -> Mapping[str, Kind]:
        from .opponents.more_kinds import IN_TRAINING

        return IN_TRAINING

    def budgets(self, config: Any) -> Budgets:
        from ..opponents.fixed_opponents import parse_opponents
        from .opponents import budgets

        file = Path(config.run_dir) / budgets.COSTS
        return budgets.Budgets(
            parse_opponents(config.opponents), int(config.actor_rollout_ref.rollout.agent.num_workers), file
        )

    def watcher(self, config: Any) -> Watcher:
        from .watching import watcher

        return watcher.Watcher(config)

    def exact(self, config: Any, tokenizer: Any, workers: Any) -> Callable[[], Measured] | None:
        if not _asks_exact(config):
            return None
        from .evaluation.exploitability.live_metrics import LiveMetrics

        return LiveMetrics(config, tokenizer, workers).measure


def _asks_exact(config: Any) -> bool:
    return any(wanted != [] for wanted in (config.validation.exploitability, config.validation.optimality))


def _ask_endpoints(config: Any) -> None:
    from ..opponents.fixed_opponents import parse_opponents
    from .opponents.budgets import API

    if entries := {each.name: each.settings for each in parse_opponents(config.opponents) if each.kind == API}:
        from .opponents.api.endpoint_settings import ApiSettings
        from .opponents.api.first_question import ask_once

        ask_once({f"opponents: {name}": ApiSettings.from_mapping(settings) for name, settings in entries.items()})
