"""What the processes of a command cost: CPU seconds of each, read from /proc while it runs.

CPU seconds count what a process does, whatever else the machine is at; how much that was is kept beside them, as a
share of the cores, so that a reader knows which wall times to trust.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from recipe.spiral.lab.profile.tracing import name_of

TICK = os.sysconf("SC_CLK_TCK")


@dataclass
class Process:
    """One process, as it was last seen.

    Attributes:
        started: seconds after the command began.
        cpu: CPU seconds, threads included.
        at_marks: its CPU seconds when each of the marks was reached.
    """

    pid: int
    name: str
    started: float
    cpu: float = 0.0
    at_marks: dict[str, float] = field(default_factory=dict)


class Watch:
    """Looks at a process and all that it starts, from a thread, until it is stopped.

    Args:
        pid: the process.
        marks: moments to note, by name: each is noted when its function first returns True.
        interval: seconds between looks. What a process does after the last look at it is not counted.
    """

    def __init__(self, pid: int, marks: dict[str, Callable[[], bool]] | None = None, interval: float = 0.1) -> None:
        self.processes: dict[int, Process] = {}
        self.marks: dict[str, float] = {}
        #: The share of all cores that other jobs took until each mark.
        self.others: dict[str, float] = {}
        self._pid, self._waiting, self._interval = pid, dict(marks or {}), interval
        self._begin, self._machine = time.monotonic(), _machine_seconds()
        self._boot = _uptime()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_often, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look once more, as the mark ``end``."""
        self._stop.set()
        self._thread.join()
        self._look()
        self._note("end")

    def _look_often(self) -> None:
        while not self._stop.wait(self._interval):
            self._look()
            for name in [name for name, reached in self._waiting.items() if reached()]:
                del self._waiting[name]
                self._note(name)

    def _note(self, mark: str) -> None:
        self.marks[mark] = time.monotonic() - self._begin
        for process in self.processes.values():
            process.at_marks[mark] = process.cpu
        ours = sum(process.cpu for process in self.processes.values())
        busy = _machine_seconds() - self._machine
        self.others[mark] = max(busy - ours, 0.0) / (self.marks[mark] * (os.cpu_count() or 1))

    def _look(self) -> None:
        stats = dict(_stats())
        ours = {self._pid}
        for pid in sorted(stats, key=lambda pid: stats[pid][2]):  # parents are older than their children
            if stats[pid][0] in ours or pid in self.processes:
                ours.add(pid)
        for pid in ours & stats.keys():
            _, cpu, started = stats[pid]
            process = self.processes.setdefault(pid, Process(pid, "other", started / TICK - self._boot))
            process.cpu = max(cpu / TICK, process.cpu)
            if line := command_line(pid):
                process.name = name_of(line)


def by_name(processes: Iterable[Process], mark: str, since: str | None = None) -> dict[str, tuple[int, float, float]]:
    """For each name: how many processes, their CPU seconds until ``mark`` (from ``since``), and when the first began;
    those that cost most first."""
    found: dict[str, list[Process]] = {}
    for process in processes:
        if mark in process.at_marks:
            found.setdefault(process.name, []).append(process)
    rows = {
        name: (
            len(group),
            sum(one.at_marks[mark] - (one.at_marks.get(since, 0.0) if since else 0.0) for one in group),
            min(one.started for one in group),
        )
        for name, group in found.items()
    }
    return dict(sorted(rows.items(), key=lambda row: -row[1][1]))


def end_with_run(output: Path) -> NoReturn:
    """End as a run did that failed; its last line, which says why, is in a file."""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines()
    sys.exit(f"the run failed: {lines[-1] if lines else 'it printed nothing'}")


def command_line(pid: int) -> str:
    """Empty: it has none (any more)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""


def _stats() -> Iterable[tuple[int, tuple[int, int, int]]]:
    """Of all processes: the parent, ticks of CPU time, and ticks from the machine's start to its own."""
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            yield int(entry), (int(fields[1]), int(fields[11]) + int(fields[12]), int(fields[19]))


def _machine_seconds() -> float:
    """CPU seconds of the whole machine, without those that it was idle or waited for the disk."""
    with open("/proc/stat", encoding="utf-8") as file:
        user, nice, system, _, _, irq, softirq = map(int, file.readline().split()[1:8])
    return (user + nice + system + irq + softirq) / TICK


def _uptime() -> float:
    with open("/proc/uptime", encoding="utf-8") as file:
        return float(file.read().split()[0])
