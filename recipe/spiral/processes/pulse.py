"""Whether a run's processes live, and what is said of one that has died.

verl's trainer waits for rows, and would wait for ever for those of a dead process.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayError

#: Seconds between two looks, and seconds in which the trainer may fail by itself after a death.
INTERVAL, GRACE = 2.0, 10.0
#: Where TransferQueue's controller is named.
QUEUE = "transfer_queue"
#: Ray's word for an actor that somebody has ended.
ON_PURPOSE = "it was killed by `ray.kill`"
#: Lines of a dead process that are shown.
_LINES = 25


class Pulse:
    """Asks each named actor of the run again and again, in a thread of the process that started it.

    Args:
        died: called with the error of one that is dead, if the run has not ended some seconds later.
    """

    def __init__(self, died: Callable[[Exception], None], interval: float = INTERVAL, grace: float = GRACE) -> None:
        self._died, self._interval, self._grace = died, interval, grace
        self._asked: dict[str, tuple[Any, Any]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pulse", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(self._grace)

    def dead(self) -> Exception | None:
        """End it; returns the error of an actor that has died before the run failed, if there is one."""
        self.stop()
        with suppress(Exception):  # Ray may be gone
            return self.look(seconds=2.0)
        return None

    def look(self, seconds: float = 0.0) -> Exception | None:
        """Ask all, and wait so long for answers; returns the error of one that is dead, and was not ended on purpose,
        as TransferQueue's actors are in the end."""
        own = (ray.get_runtime_context().namespace, QUEUE)  # a cluster may have other runs
        for actor in ray.util.list_named_actors(all_namespaces=True):
            if actor["namespace"] in own and actor["name"] not in self._asked:
                with suppress(ValueError):  # it has ended meanwhile
                    self._asked[actor["name"]] = ray.get_actor(**actor), None
        for name, (actor, answer) in self._asked.items():
            if answer is None:
                # of a server, whether its engine answers: that is a process of its own
                self._asked[name] = actor, getattr(actor, "engine_answers", actor.__ray_ready__).remote()
        answers = {answer: name for name, (_, answer) in self._asked.items()}
        for answer in ray.wait([*answers], num_returns=len(answers), timeout=seconds)[0] if answers else ():
            name = answers[answer]
            self._asked[name] = self._asked[name][0], None
            try:
                ray.get(answer)
            except ActorUnavailableError:  # which may pass
                continue
            except RayActorError as error:
                if ON_PURPOSE not in str(error):
                    return error
            except RayError as error:
                failure = RuntimeError(f"{name}: {getattr(error, 'cause', error)!r}")
                failure.__cause__ = error
                return failure
        return None

    def _watch(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                dead: Exception | None = self.look()
            except Exception as error:  # Ray itself
                dead = error
            if dead is not None:
                if not self._stop.wait(self._grace):
                    self._died(dead)
                return


def said_last(error: BaseException, session: Path | None) -> str:
    """The last lines that the process wrote which an error of Ray's comes from; "": it wrote none, or nobody knows.

    Args:
        session: where the run's own Ray has its files; None: it is a cluster's.
    """
    # the processes that it came through, the outermost first
    pids = re.findall(r"\bpid[=:] ?(\d+)", f"{error.__cause__ or ''} {error}")
    if not pids or session is None:
        return ""
    logs = sorted(session.glob(f"session_latest/logs/worker-*-{pids[-1]}.*"))
    lines = [line for log in logs for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return "\n".join([f"the last lines of process {pids[-1]}:", *lines[-_LINES:]]) if lines else ""
