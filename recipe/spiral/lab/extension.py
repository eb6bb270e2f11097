"""What the lab adds to a training: opponents that are no past selves, exact metrics in validation, the guard, games for
trackers, the memory's estimate and dry runs; and the types and ranges of its settings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from hydra.core.config_store import ConfigStore

from .. import extensions
from ..config import within
from ..extensions import Kind, Measured, Watcher

Action = StrEnum("Action", "warn stop off")


@dataclass
class Guard:
    action: Action
    window: int = within(1)
    patience: int = within(1)
    shorter: float | None = within(0, 1)
    short_reasoning: float | None = within(0, 1)
    reasoning_chars: int = within(0)
    entropy_low: float | None = within(0)
    entropy_high: float | None = within(0)
    role_imbalance: float | None = within(0, 1)
    invalid: float | None = within(0, 1)
    grad_norm: float | None = within(0)


ConfigStore.instance().store(group="extension", name="lab_schema", package="_global_", node={"guard": Guard})


class Extension(extensions.Extension):
    def check(self, config: Any) -> None:
        from .opponents.api_settings import refuse_environment
        from .planning.memory import check_memory

        refuse_environment(config, "opponents")
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
