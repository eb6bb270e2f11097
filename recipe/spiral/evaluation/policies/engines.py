"""Which models are loaded when: engines load other weights or are replaced, and work is ordered to make this rare.

At most two models are needed at a time: those of a match-up's two players.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from ...players.policy import Generate
from .engine import VLLMEngine
from .policy import Policy

Models = frozenset[Path]
Work = TypeVar("Work")


#: ``start(model, adapters, engines)`` starts an engine, one of so many that run at a time.
Start = Callable[[Path, tuple[Path, ...], int], VLLMEngine]


def models_of(policies: Iterable[Policy]) -> Models:
    """The models that must be loaded so that these policies can answer."""
    return frozenset(policy.model for policy in policies if policy.model is not None)


def at_once(work: Iterable[Models]) -> int:
    """The largest number of models that a piece of work needs; at least 1."""
    return max((len(models) for models in work), default=1) or 1


def in_order(work: Mapping[Models, Work]) -> list[tuple[Models, Work]]:
    """Order pieces of work, by the models that they need, so that few models must be loaded.

    The next piece is always the one that needs the fewest models that are not loaded. Of equals it is the one that uses
    the most of those that are, then the one that comes first.
    """
    left, ordered = dict(work), []
    loaded: Models = frozenset()
    room = at_once(work)
    while left:
        chosen = min(left, key=lambda models: (len(models - loaded), -len(models & loaded)))
        ordered.append((chosen, left.pop(chosen)))
        # What is not needed stays loaded where there is room, as in ``Engines.load``.
        loaded = chosen if len(chosen | loaded) > room else chosen | loaded
    return ordered


class Engines:
    """The engines that are running.

    Args:
        start: makes one.
        policies: all who may play; they say which adapters each model has.
        room: the largest number of models that are needed at a time.
        show: prints what is being loaded.
    """

    def __init__(self, start: Start, policies: Iterable[Policy], room: int, show: Callable[[str], None]) -> None:
        self._start, self._policies, self._room, self._show = start, list(policies), room, show
        self._running: list[VLLMEngine] = []

    async def load(self, models: Models) -> None:
        """Load these models, unless they are; others stay as long as nothing needs their place.

        Raises:
            EngineFailure: one does not start, or cannot be loaded.
        """
        for model in sorted(models - {engine.model for engine in self._running}):
            served = (policy.adapter for policy in self._policies if policy.model == model)
            adapters = tuple(dict.fromkeys(adapter for adapter in served if adapter is not None))
            if len(self._running) >= self._room:
                free = [engine for engine in self._running if engine.model not in models]
                fitting = next((engine for engine in free if engine.fits(model, adapters)), None)
                if fitting is not None:
                    self._show(f"loading {model}")
                    await fitting.become(model)
                    continue
                self._running.remove(free[0])
                free[0].close()
            self._show(f"starting vLLM with {model}")
            self._running.append(self._start(model, adapters, self._room))

    def generate_as(self, policy: Policy) -> Generate:
        """A policy's engine; its model must be loaded."""
        engine = next(engine for engine in self._running if engine.model == policy.model)
        return engine.generate_as(policy.name, policy.adapter)

    def close(self) -> None:
        """End all engines."""
        while self._running:
            self._running.pop().close()
