"""Runs a sweep's jobs, so many at once, each in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from ...processes.interrupts import LIMIT, SAVE_LIMIT, STOPPED_STATUS, held_back
from ...processes.launch import clean_run, end_with_parent
from ...processes.run_log import duration
from ...processes.terminal import Follow, visible
from ..run_progress import progress, steps_done
from .jobs import OUTPUT, Job, State, Status
from .sweep_table import REPORT, TABLE, write_tables

#: Of a job, by its process's exit status; any other has failed, or was interrupted.
_STATUSES: dict[int | None, Status] = {0: "ok", STOPPED_STATUS: "stopped"}
#: Seconds that an interrupted job has to clean up after itself, when it has saved.
PATIENCE = 30.0


@dataclass
class _Running:
    """A job's process, with the seconds and the bytes of output of its earlier starts."""

    job: Job
    process: subprocess.Popen[bytes]
    slot: int
    started: float
    seconds_before: float
    output_before: int
    following: ExitStack


@dataclass
class Sweep:
    """Runs jobs, so many at once, and keeps the table."""

    jobs: Sequence[Job]
    folder: Path
    at_once: int
    command: Sequence[str]  # what starts a job, before its arguments
    show: Callable[[str], None] = lambda line: print(line, flush=True)
    on_start: Callable[[Job], None] = lambda job: None  # called just before a job's process starts

    def __post_init__(self) -> None:
        self.states = {job.name: State.read(job.folder) for job in self.jobs}

    def run(self) -> int:
        """Run what is not done yet; returns the exit status: 0 if every job is done, 1 otherwise.

        Raises:
            InUse: the same sweep is running.
            KeyboardInterrupt: Ctrl-C or SIGTERM; the jobs have ended then, and the table is written.
        """
        with clean_run(self.folder):
            todo = [job for job in self.jobs if not self._is_done(job)]
            for job in todo:
                self.states[job.name].status = "waiting"
            self.show(
                f"sweep of {len(self.jobs)} jobs, {self.at_once} at once, {len(self.jobs) - len(todo)} done before: "
                f"{self.folder}"
            )
            try:
                self._run(todo)
            finally:
                self.show(f"\n{self.write_tables()}\ntables: {self.folder / TABLE}, {self.folder / REPORT}")
        return 0 if all(state.status == "ok" for state in self.states.values()) else 1

    def write_tables(self) -> str:
        """Write both tables; returns the one for people."""
        return write_tables(self.folder, self.jobs, self.states)

    def _is_done(self, job: Job) -> bool:
        state = self.states[job.name]
        return state.status == "ok" and state.config == job.config

    def _run(self, todo: Sequence[Job]) -> None:
        waiting = list(todo)
        running: list[_Running] = []
        try:
            while waiting or running:
                while waiting and len(running) < self.at_once:
                    slot = min(set(range(self.at_once)) - {run.slot for run in running})
                    with held_back():  # a job that has started is among those that are ended
                        running.append(self._start(waiting.pop(0), slot))
                for run in [run for run in running if run.process.poll() is not None]:
                    running.remove(run)
                    self._end(run)
                time.sleep(0.1)
        finally:
            for run in running:
                run.process.terminate()  # not SIGINT, which a process in the background may have been told to ignore
            try:
                for run in running:
                    with suppress(subprocess.TimeoutExpired):
                        run.process.wait(int(os.environ.get(SAVE_LIMIT, LIMIT)) + PATIENCE)
            finally:
                for run in running:
                    self._end(run)

    def _start(self, job: Job, slot: int) -> _Running:
        job.folder.mkdir(parents=True, exist_ok=True)
        output = job.folder / OUTPUT
        state = self.states[job.name]
        state.status, state.message, state.config = "running", "", job.config
        self._note(job)
        self.on_start(job)
        self.show(f"{self._title(job)}: starts, output in {output}")
        following = ExitStack()
        with output.open("ab") as sink:
            output_before = sink.tell()
            if self.at_once == 1:
                following.enter_context(Follow(job.folder, lambda line: self.show(f"[{job.name}] {line}"), log=OUTPUT))
            else:
                following.enter_context(Follow(job.folder, progress(self._title(job), self.show)))
            process = subprocess.Popen(
                [*self.command, *job.arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._devices(job, slot)},
                # Ctrl-C is for the sweep, which tells its jobs
                start_new_session=True,
                preexec_fn=end_with_parent,
            )
        return _Running(job, process, slot, time.monotonic(), state.seconds, output_before, following)

    def _devices(self, job: Job, slot: int) -> dict[str, str]:
        """Side by side, each job has accelerators of its own: every Ray counts them from the first."""
        if self.at_once == 1 or job.devices == 0:
            return {}
        first = slot * max(other.devices for other in self.jobs)  # jobs may differ in how many they take
        share = range(first, first + job.devices)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible is not None else None
        return {"CUDA_VISIBLE_DEVICES": ",".join(names[i] if names else str(i) for i in share)}

    def _end(self, run: _Running) -> None:
        """Note how a job went; one that has not ended yet counts as interrupted."""
        job, status = run.job, run.process.poll()
        run.following.close()
        state = self.states[job.name]
        interrupted = status is None or status in (128 + signal.SIGINT, -signal.SIGINT, -signal.SIGTERM)
        state.status = _STATUSES.get(status, "interrupted" if interrupted else "failed")
        state.seconds = run.seconds_before + time.monotonic() - run.started
        state.steps = steps_done(job.folder)
        state.message = (
            "" if status == 0 else _last_line(job.folder / OUTPUT, run.output_before) or _termination(status)
        )
        self._note(job)
        message = f", {state.message}" if state.message else ""
        self.show(
            f"{self._title(job)}: {state.status} after {state.steps} steps and {duration(state.seconds)}{message}"
        )

    def _title(self, job: Job) -> str:
        return f"job {self.jobs.index(job) + 1}/{len(self.jobs)} {job.name}"

    def _note(self, job: Job) -> None:
        self.states[job.name].write(job.folder)
        self.write_tables()


def _last_line(output: Path, start: int) -> str:
    """The last line that is not empty after so many bytes, without the entry point's name."""
    with output.open("rb") as printed:
        printed.seek(start)
        lines = printed.read().decode("utf-8", errors="replace").split("\n")
    return visible(next((line.strip().removeprefix("spiral: ") for line in reversed(lines) if line.strip()), ""))


def _termination(status: int | None) -> str:
    if status is None:
        return "did not end in time"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
