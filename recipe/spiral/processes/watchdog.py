"""Ends a run when one of its workers has died, and says which one hangs. Without it verl would wait for ever.

The watchdog asks every actor of the run whether it is ready. For a dead one Ray raises an error. The watchdog then
writes the cause into a file for the driver, and ends the trainer's process. Any other error of Ray's may pass, as that
of an actor that cannot be reached for a moment: only if it stays, it counts. A busy actor answers late; one that takes
longer than several of the run's steps hangs: there is a line, and with ``watchdog=stop`` the run ends, too.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from ..storage.disk import LineFile
from .causes import CAUSE, death_of
from .engine_failure import EngineFailure
from .run_log import LOG, duration

#: Seconds in which the trainer may notice the death itself and end with an error of its own, its trackers closed.
GRACE = 10.0
#: Seconds in which actors may answer a trainer that fails.
LAST = 5.0
#: Seconds for which an actor may answer with errors that are not its death.
PATIENCE = 120.0
#: Seconds by which a look may be late where this process runs.
STILL = 1.0
#: How long an actor may take to answer: so many times as the longest step so far, but so many seconds at least, and
#: others before a step has ended.
STEPS, LEAST, FIRST = 3, 60.0, 900.0


class Watchdog:
    """Watches actors from a thread of the trainer's process.

    Args:
        actors: by the name that a person should read ("policy worker 0").
        run_dir: where the cause is written.
        interval: seconds between looks.
        step: gives the step that is under way.
        on_silence: ``watchdog`` of the config: "warn", "stop", or another value for nothing.
    """

    def __init__(
        self,
        actors: Mapping[str, Any],
        run_dir: Path,
        interval: float = 2.0,
        patience: float = PATIENCE,
        step: Callable[[], int] = lambda: 0,
        on_silence: object = "warn",
    ) -> None:
        self._actors = dict(actors)
        self._cause = run_dir / CAUSE
        self._interval = interval
        self._patience = patience
        self._steps, self._on_silence = _Steps(step), on_silence
        self._say = LineFile(run_dir / LOG).append
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def blame(self) -> None:
        """Write the cause where an actor has died: the trainer, which fails by that, knows only what it asked for."""
        with suppress(RayError):  # Ray itself may be gone
            asked = {self._ask(name): name for name in self._actors}
            for ref in ray.wait(list(asked), num_returns=len(asked), timeout=LAST)[0]:
                try:
                    ray.get(ref)
                except RayError as error:
                    if died := _death(asked[ref], error):
                        return self._write(died)

    def _watch(self) -> None:
        try:
            self._look()
        except RayError as error:
            if not self._stop.is_set():
                self._end(f"the trainer has lost Ray ({_in_a_line(error)})")

    def _look(self) -> None:
        asked = {self._ask(name): name for name in self._actors}
        since = dict.fromkeys(self._actors, time.monotonic())
        silent: set[str] = set()
        failing_since: dict[str, float] = {}
        last = time.monotonic()
        while not self._stop.wait(self._interval):
            still, last = time.monotonic() - last - self._interval, time.monotonic()
            if still > STILL:  # this process was stopped itself, and the others may have answered
                since = {name: at + still for name, at in since.items()}
                self._steps.leave_out(still)
                if still >= self._steps.limit() and self._on_silence in ("warn", "stop"):
                    self._say(f"the trainer itself stood still for {duration(still)}: it was stopped, or had no time")
            answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
            for ref in answered:
                name = asked.pop(ref)
                try:
                    ray.get(ref)
                    failing_since.pop(name, None)
                except RayError as error:
                    if died := _death(name, error):
                        self._end(died)
                        return
                    seconds = time.monotonic() - failing_since.setdefault(name, time.monotonic())
                    if seconds >= self._patience:
                        self._end(f"the {name} has not answered for {seconds:.0f} s ({_in_a_line(error)})")
                        return
                if name in silent:
                    silent.remove(name)
                    self._steps.leave_out(seconds := time.monotonic() - since[name])
                    self._say(f"the {name} answers again, after {duration(seconds)}")
                since[name] = time.monotonic()
                asked[self._ask(name)] = name
            limit = self._steps.limit()
            for name in asked.values():
                seconds = time.monotonic() - since[name]
                if seconds < limit or name in silent or self._on_silence not in ("warn", "stop"):
                    continue
                silent.add(name)
                at = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
                what = f"the {name} has not answered since {at}, for {duration(seconds)}"
                self._say(f"{what}: it hangs, or is stopped")
                if self._on_silence == "stop":
                    self._end(what)
                    return

    def _ask(self, name: str) -> Any:
        """Of a server, whether its engine answers: that is a process of its own."""
        actor = self._actors[name]
        return getattr(actor, "engine_answers", actor.__ray_ready__).remote()

    def _write(self, what: str) -> None:
        with suppress(OSError):  # the disk may be full
            self._cause.write_text(f"{what}; start the run again to go on from its last checkpoint", encoding="utf-8")

    def _end(self, what: str) -> None:
        self._write(what)
        if not self._stop.wait(GRACE):
            os._exit(1)


class _Steps:
    """How long the run's steps have taken."""

    def __init__(self, step: Callable[[], int]) -> None:
        self._step, self._last, self._since, self._longest = step, step(), time.monotonic(), 0.0

    def leave_out(self, seconds: float) -> None:
        """Nobody worked for so long in the step that is under way: the next hang is to be noticed as soon as this."""
        self._since += seconds

    def limit(self) -> float:
        """Seconds in which an actor should answer by now."""
        if (step := self._step()) != self._last:
            self._longest = max(self._longest, time.monotonic() - self._since)
            self._last, self._since = step, time.monotonic()
        return max(STEPS * self._longest, LEAST) if self._longest else FIRST


def _death(name: str, error: RayError) -> str | None:
    """What to say of an actor that answers so; None: it may answer better yet."""
    if isinstance(failure := getattr(error, "cause", None), EngineFailure):
        return str(failure)
    lasting = isinstance(error, RayActorError) and not isinstance(error, ActorUnavailableError)
    return death_of(name, error) if lasting else None


def _in_a_line(error: RayError) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
