"""The seam between training and exact metrics of the policy: imported only where ``validation`` names some."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

#: Scores token ids: (questions, end tokens, temperature, longest response in tokens) -> each rank's part of the scores.
ScoreAnswers = Callable[[Any, Sequence[int], float, int], Sequence[dict[tuple[int, int], float]]]


class Measured(NamedTuple):
    """The metrics of a validation, and a line for people about each game."""

    metrics: dict[str, float]
    lines: list[str]


def load_exact_metrics(config: Any, tokenizer: Any, score: ScoreAnswers) -> Callable[[], Measured] | None:
    """What computes a validation's exact metrics, from the policy's probabilities at all information sets of small
    games; None: there are none."""
    if not _asked(config):
        return None
    measure: Callable[[], Measured] = _implementation().LiveMetrics(config, tokenizer, score).measure
    return measure


def check_games(config: Any) -> None:
    """See that the exact metrics can be computed; a ValueError says what to do."""
    if _asked(config):
        _implementation().check(config)


def _asked(config: Any) -> bool:
    """Whether validation asks for any, or tries to."""
    return any(wanted != [] for wanted in (config.validation.exploitability, config.validation.optimality))


def _implementation() -> Any:
    return importlib.import_module(f"{__package__.rsplit('.', 1)[0]}.evaluation.exploitability.in_training")
