"""Ends a run when one of its workers has died. Without it verl would wait for the worker for ever.

The watchdog asks every actor of the run whether it is ready. A busy actor answers late, which does no harm; for a dead
one Ray raises an error. The watchdog then writes the cause into a file for the driver, and ends the trainer's process.
Any other error of Ray's may pass, as that of an actor that cannot be reached for a moment: only if it stays, it counts.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

from .causes import CAUSE, why_it_died

#: Seconds in which the trainer may notice the death itself and end with an error of its own, its trackers closed.
GRACE = 10.0
#: Seconds for which an actor may answer with errors that are not its death.
PATIENCE = 120.0


class Watchdog:
    """Watches actors from a thread of the trainer's process.

    Args:
        actors: by the name that a person should read ("policy worker 0").
        run_dir: where the cause is written.
        interval: seconds between looks.
    """

    def __init__(
        self, actors: Mapping[str, Any], run_dir: Path, interval: float = 2.0, patience: float = PATIENCE
    ) -> None:
        self._actors = dict(actors)
        self._cause = run_dir / CAUSE
        self._interval = interval
        self._patience = patience
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def _watch(self) -> None:
        try:
            self._look()
        except RayError as error:
            if not self._stop.is_set():
                self._end(f"the trainer has lost Ray ({_in_a_line(error)})")

    def _look(self) -> None:
        asked = {actor.__ray_ready__.remote(): name for name, actor in self._actors.items()}
        failing_since: dict[str, float] = {}
        while not self._stop.wait(self._interval):
            answered, _ = ray.wait(list(asked), num_returns=len(asked), timeout=0)
            for ref in answered:
                name = asked.pop(ref)
                try:
                    ray.get(ref)
                    failing_since.pop(name, None)
                except RayError as error:
                    if isinstance(error, RayActorError) and not isinstance(error, ActorUnavailableError):
                        self._end(f"the {name} died ({why_it_died(error)})")
                        return
                    seconds = time.monotonic() - failing_since.setdefault(name, time.monotonic())
                    if seconds >= self._patience:
                        self._end(f"the {name} has not answered for {seconds:.0f} s ({_in_a_line(error)})")
                        return
                asked[self._actors[name].__ray_ready__.remote()] = name

    def _end(self, what: str) -> None:
        with suppress(OSError):  # the disk may be full
            self._cause.write_text(f"{what}; start the run again to go on from its last checkpoint", encoding="utf-8")
        if not self._stop.wait(GRACE):
            os._exit(1)


def _in_a_line(error: RayError) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
