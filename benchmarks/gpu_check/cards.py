"""Memory of the cards, or on a CPU of this process's descendants, as it goes, and what of it belongs to which phase."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

import psutil

from recipe.spiral.lab.planning.devices import cards

#: verl's timers of a step in the order in which the phases follow each other; ``play`` is ``gen``.
PHASES = (
    *("load_opponents", "gen", "reward", "old_log_prob", "ref", "values", "adv", "update_critic", "update_actor"),
    *("snapshot", "save_checkpoint", "update_ref", "update_weights", "testing"),
)


def used() -> float:
    """GiB in use on the first card that CUDA may use, by all processes.

    Raises:
        OSError: nvidia-smi is not there.
    """
    return round(cards()[0].used / 2**30, 2)


def held() -> float | None:
    """GiB that this process and those below it have of the cards, whatever others have; None where nvidia-smi does not
    name their processes, as in most containers."""
    this = psutil.Process()
    ours = {this.pid, *(child.pid for child in this.children(recursive=True))}
    command = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    rows = [line.split(",") for line in lines if line.count(",") == 1]
    sizes = {int(pid): size.strip() for pid, size in rows if pid.strip().isdecimal()}
    found = [int(size) for pid, size in sizes.items() if pid in ours and size.isdecimal()]
    return round(sum(found) / 2**10, 2) if found else None


def count() -> int:
    """The number of cards that CUDA may use."""
    return len(cards())


class Watch:
    """Looks at the memory in use while the block runs.

    Args:
        on_cpu: the memory of the processes below this one, without what they share, instead of the first card's.
        interval: seconds between looks.
    """

    def __init__(self, on_cpu: bool, interval: float = 0.2) -> None:
        self._look = _of_processes if on_cpu else used
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        #: (time by ``time.time``, GiB)
        self.seen: list[tuple[float, float]] = []

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            with suppress(OSError, subprocess.SubprocessError, psutil.Error, IndexError):
                self.seen.append((time.time(), self._look()))


def _of_processes() -> float:
    total = 0
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            memory = process.memory_info()
            total += memory.rss - memory.shared
    return total / 2**30


def peaks(seen: Sequence[tuple[float, float]], steps: Sequence[tuple[float, Mapping[str, float]]]) -> dict[str, float]:
    """The largest memory in use, in GiB, of each phase of the steps, and before the first one.

    The moments of the phases are reckoned from the end of each step, so that short phases are seen with their
    neighbours.

    Args:
        seen: (time, GiB) as ``Watch`` has them.
        steps: the end of each step, and the seconds of its phases by verl's names, with ``step`` for all of it.
    """
    found: dict[str, float] = {}

    def note(phase: str, begin: float, end: float) -> None:
        inside = [memory for moment, memory in seen if begin <= moment <= end]
        if inside:
            found[phase] = round(max(found.get(phase, 0.0), *inside), 2)

    for place, (end, seconds) in enumerate(steps):
        moment = end - seconds.get("step", 0.0)
        if place == 0:
            note("start", float("-inf"), moment)
        for phase in PHASES:
            if seconds.get(phase):
                note(phase, moment, moment + seconds[phase])
                moment += seconds[phase]
        note("step", end - seconds.get("step", 0.0), end)
    return found
