"""Where the time of games goes: how much of it their requests are in an engine, and what the games' process computes.

Measured where games are played, and reported with each of them; the trainer makes metrics of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from typing import Any

#: Where an answer of an engine says how long the engine took, among its extra fields.
ENGINE_SECONDS = "engine_seconds"


@dataclass
class Pace:
    """Of one game."""

    #: From its start to its end, retries included.
    seconds: float = 0.0
    #: Of these, how long an engine had a request of it.
    engine: float = 0.0
    #: CPU seconds of the process that plays it, and others at the same time, since it last reported some.
    cpu: float = 0.0


def total(paces: Iterable[Pace]) -> Pace:
    """Of a game and its branches together."""
    return Pace(*(sum(values) for values in zip(*map(astuple, paces), strict=True)))


#: Seconds between two looks at the process's CPU seconds: on some systems one takes longer than a turn.
LOOK = 0.2
#: The game that the running task plays.
_game: ContextVar[Pace | None] = ContextVar("_game", default=None)


class _Cpu:
    """This process's CPU seconds since the last look."""

    def __init__(self) -> None:
        self._looked, self._seconds = -LOOK, 0.0

    def new(self) -> float:
        """Those since the last look; none where that was a moment ago, or where this is the first."""
        now = time.perf_counter()
        if now < self._looked + LOOK:
            return 0.0
        first, before = self._looked < 0, self._seconds
        self._looked, self._seconds = now, time.process_time()
        return 0.0 if first else self._seconds - before


_cpu = _Cpu()


def begin() -> None:
    """The running task begins a game."""
    _game.set(Pace(seconds=-time.perf_counter(), cpu=_cpu.new()))


def answered(extra_fields: dict[str, Any]) -> None:
    """An engine has answered the running task."""
    if (game := _game.get()) is not None:
        game.engine += extra_fields.get(ENGINE_SECONDS) or 0.0


def end() -> Pace:
    """The running task has ended its game."""
    game = _game.get()
    assert game is not None, "begin comes first"
    game.seconds += time.perf_counter()
    game.cpu += _cpu.new()
    return game
