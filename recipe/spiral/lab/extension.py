"""What the lab adds to a training: opponents that are no past selves, exact metrics and benchmarks in validation, the
guard, games for trackers, embedded models, the memory's estimate and dry runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import extensions
from ..extensions import Given, Kind, Measured, Questions, Watcher


class Extension(extensions.Extension):
    def run(self, config: Any) -> int | None:
        """A dry run."""
        if not config.dry_run:
            return None
        from .planning.dry_run import dry_run

        return dry_run(config)

    def check(self, config: Any) -> None:
        from ..processes.as_written import refuse_environment
        from .opponents.more_kinds import API

        refuse_environment(config.opponents, "opponents", API)
        if _asks_exact(config):
            from .evaluation.exploitability import live_metrics

            live_metrics.check(config)
        if config.validation.benchmarks != []:
            from .evaluation.benchmarks.validation_benchmarks import check_entries

            check_entries(config)
        if not config.dry_run:  # which asks nobody
            _ask_endpoints(config)

    def model(self, config: Any) -> Path | None:
        """An embedded model. One that is neither shipped nor in the cache is made now."""
        from .models import of_config

        return of_config(config)

    def ready(self, config: Any, tokenizer: Any) -> None:
        from .planning.memory_table import check_memory
        from .watching.tracked_games import check_trackers

        check_trackers(config.trainer)
        if config.validation.benchmarks != []:
            from .evaluation.benchmarks.validation_benchmarks import check_prompts

            check_prompts(config, tokenizer)
        check_memory(config)

    def agent_loops(self, config: Any) -> Mapping[str, str]:
        return {"spiral_question": f"{__package__}.evaluation.benchmarks.question_loop.QuestionAgentLoop"}

    def summary(self, config: Any) -> str:
        from ..rollouts.schedule import parse_games, plays_games
        from .run_summary import summary

        game = parse_games(config.games)[0].id if plays_games(config) else None
        return summary(Path(config.run_dir), Path(config.trainer.default_local_dir), game)

    def opponents(self) -> Mapping[str, Kind]:
        from .opponents.more_kinds import KINDS

        return KINDS

    def given(self, entry: Mapping[str, Any], setting: str) -> Sequence[Given]:
        from .opponents.elsewhere import given

        return given(entry, setting)

    def watcher(self, config: Any) -> Watcher:
        from .watching import watcher

        return watcher.Watcher(config)

    def validate(self, config: Any, tokenizer: Any, workers: Any) -> Callable[[], Measured] | None:
        if not _asks_exact(config):
            return None
        from .evaluation.exploitability.live_metrics import LiveMetrics

        return LiveMetrics(config, tokenizer, workers).measure

    def questions(self, config: Any, seed: int) -> Questions | None:
        if config.validation.benchmarks == []:
            return None
        from .evaluation.benchmarks.validation_benchmarks import ValidationBenchmarks

        return ValidationBenchmarks(config.validation.benchmarks, seed)


def _asks_exact(config: Any) -> bool:
    return any(wanted != [] for wanted in (config.validation.exploitability, config.validation.optimality))


def _ask_endpoints(config: Any) -> None:
    from ..opponents.fixed_opponents import parse_opponents
    from .opponents.more_kinds import API

    if entries := {each.name: each.settings for each in parse_opponents(config.opponents) if each.kind == API}:
        from .opponents.api.endpoint_settings import ApiSettings
        from .opponents.api.first_question import ask_once

        ask_once({f"opponents: {name}": ApiSettings.from_mapping(settings) for name, settings in entries.items()})
