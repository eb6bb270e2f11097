"""The seam between training and the reasoning benchmarks: imported only where ``validation.benchmarks`` names some."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..players.seeds import GameKey


class Benchmarks(Protocol):
    """What a run's validation asks besides its games."""

    def rows(self, games: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """The dataset's rows: the games, and after them one row for each answer; all with the same columns."""
        ...

    def judge(
        self, answers: Mapping[GameKey, Mapping[str, Any]]
    ) -> tuple[Sequence[Mapping[str, Any]], dict[str, float]]:
        """The answers with their verdicts, as JSON takes them, and the metrics."""
        ...


def load_benchmarks(config: Any, seed: int) -> Benchmarks | None:
    """Those that a run's validation asks, by the config's ``validation`` and the run's seed; None: there are none.

    Raises:
        ValueError: an entry of ``validation.benchmarks`` is wrong, or its questions are not to be had.
        ImportError: a package is missing; the message names the extra.
    """
    if not asked(config):
        return None
    made: Benchmarks = _implementation("in_training").ValidationBenchmarks(config.benchmarks, seed)
    return made


def check_entries(config: Any) -> None:
    """See that the questions of a run's benchmarks are there and can be judged; a ValueError says what to do."""
    if asked(config.validation):
        _implementation("entries").check_entries(config)


def check_prompts(config: Any, tokenizer: Any) -> None:
    """See that every question's prompt can be made and is not too long; a ValueError says what to do."""
    if asked(config.validation):
        _implementation("entries").check_prompts(config, tokenizer)


def of_the_hub(entries: Any) -> list[Any]:
    """The entries of ``validation.benchmarks`` whose questions are not in a folder, as they are written.

    Raises:
        ValueError: one is wrong; the message names the setting.
    """
    parsed = _implementation("entries").parse_entries(entries)
    return [written for written, entry in zip(entries, parsed, strict=True) if entry.path is None]


def places(names: Iterable[str]) -> Iterator[str]:
    """Where each benchmark's questions come from on the hub, in words."""
    for name in names:
        benchmark = _implementation("catalog").get_benchmark(name)
        terms = ", after its terms were accepted there" if benchmark.gated else ""
        yield f"{benchmark.id}: {benchmark.hub}, {benchmark.questions} questions{terms}"


def asked(config: Any) -> bool:
    """Whether validation asks anything, or tries to."""
    return bool(config.benchmarks != [])


def _implementation(module: str) -> Any:
    return importlib.import_module(f"{__package__.rsplit('.', 1)[0]}.evaluation.benchmarks.{module}")
