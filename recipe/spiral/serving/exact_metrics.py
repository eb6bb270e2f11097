"""The seam between training and exact metrics of the policy: imported only where ``validation`` names some."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

#: Scores token ids: (questions, end tokens, temperature, longest response in tokens) -> each rank's part of the scores.
ScoreAnswers = Callable[[Any, Sequence[int], float, int], Sequence[dict[tuple[int, int], float]]]


class Measured(NamedTuple):
    """The metrics of a validation, and a line for people about each game."""

    metrics: dict[str, float]
    lines: list[str]


class ExactMetrics(Protocol):
    """What a run's validation computes from the policy's probabilities at all information sets of small games."""

    def measure(self) -> Measured:
        """The metrics of the policy as it is now."""
        ...


def load_exact_metrics(config: Any, tokenizer: Any, score: ScoreAnswers) -> ExactMetrics | None:
    """Those that a run's validation computes; None: there are none.

    Args:
        config: the run's.
        tokenizer: the policy's.
        score: the workers'.
    """
    if not asked(config):
        return None
    made: ExactMetrics = _implementation().LiveMetrics(config, tokenizer, score)
    return made


def check_games(config: Any) -> None:
    """See that the exact metrics can be computed.

    Raises:
        ValueError: one cannot; the message names the setting and what to do.
    """
    if asked(config):
        _implementation().check(config)


def asked(config: Any) -> bool:
    """Whether validation asks for any, or tries to."""
    settings = config.validation
    return any(wanted is None or isinstance(wanted, str) or len(wanted) > 0 for wanted in _named(settings))


def _named(settings: Any) -> tuple[Any, Any]:
    return settings.exploitability, settings.optimality


def _implementation() -> Any:
    return importlib.import_module(f"{__package__.rsplit('.', 1)[0]}.evaluation.exploitability.in_training")
