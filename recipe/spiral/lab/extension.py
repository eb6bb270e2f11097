"""What the lab adds to a training: opponents that are no past selves, exact metrics in validation, the guard, games for
trackers, the memory's estimate and dry runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from .. import extensions
from ..extensions import Kind, Measured, Watcher


class Extension(extensions.Extension):
    def check(self, config: Any) -> None:
        from ..processes.as_written import refuse_environment
        from .opponents import API
        from .planning.memory import check_memory

        refuse_environment(config.opponents, "opponents", API)
        if _asks_exact(config):
            from .evaluation.exploitability import live_metrics

            live_metrics.check(config)
        if config.dry_run:
            from .planning.dry_run import dry_run

            for other in (each for each in extensions.loaded() if each is not self):
                other.check(config)
            sys.exit(dry_run(config))
        _ask_endpoints(config)
        check_memory(config)

    def opponents(self) -> Mapping[str, Kind]:
        from .opponents import KINDS

        return KINDS

    def watcher(self, config: Any) -> Watcher:
        from .watching import watcher

        return watcher.Watcher(config)

    def validate(self, config: Any, tokenizer: Any, workers: Any) -> Callable[[], Measured] | None:
        if not _asks_exact(config):
            return None
        from .evaluation.exploitability.live_metrics import LiveMetrics

        return LiveMetrics(config, tokenizer, workers).measure


def _asks_exact(config: Any) -> bool:
    return any(wanted != [] for wanted in (config.validation.exploitability, config.validation.optimality))


def _ask_endpoints(config: Any) -> None:
    from ..opponents.fixed_opponents import parse_opponents
    from .opponents import API

    if entries := {each.name: each.settings for each in parse_opponents(config.opponents) if each.kind == API}:
        from .opponents.api_player import ask_once
        from .opponents.api_settings import ApiSettings

        ask_once({f"opponents: {name}": ApiSettings.from_mapping(settings) for name, settings in entries.items()})
