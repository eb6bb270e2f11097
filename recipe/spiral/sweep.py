"""Runs a sweep: each of its jobs is a run of its own, in a process of its own with a Ray of its own.

Hydra composes the jobs (``-m``), so that a typo ends the sweep before anything starts; ``plan`` gives each a folder
named by what is swept; ``Sweep`` runs them. A job that fails does not end the others. A table is written whenever a job
starts or ends, and a second start of the same sweep resumes what is unfinished and leaves out what is done.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from .checks import ConfigError
from .console import Follow, duration, steps_done
from .launch import PROCESSES, clean_run, end_leftovers, end_with_parent
from .records import RecordFolder
from .summary import first_and_last

#: In a job's folder: what it printed, and how it ended.
OUTPUT = "output.txt"
STATE = "job.json"
#: In the sweep's folder, for programs and for people.
TABLE = "results.csv"
REPORT = "results.md"
#: Settings that change how a job is run or shown, and not what it trains.
_FOR_SHOW = ("jobs_at_once", "verbose", "poll_interval")
#: Seconds that an interrupted job has to clean up after itself.
PATIENCE = 60.0

Status = Literal["waiting", "running", "ok", "failed", "interrupted"]


@dataclass(frozen=True)
class Job:
    """One run of a sweep.

    Attributes:
        name: its folder's, made of what is swept.
        folder: its ``run_dir``.
        swept: the overrides in which it differs from the others, by key.
        arguments: what the entry point is started with.
        config: a digest of the composed config, by which a job that is done is known again.
        devices: how many accelerators it takes; 0 on a CPU.
    """

    name: str
    folder: Path
    swept: Mapping[str, str]
    arguments: tuple[str, ...] = ()
    config: str = ""
    devices: int = 0


@dataclass
class State:
    """How a job goes; kept in its folder."""

    status: Status = "waiting"
    message: str = ""
    steps: int = 0
    seconds: float = 0.0
    config: str = ""

    @classmethod
    def read(cls, folder: Path) -> State:
        try:
            return cls(**json.loads((folder / STATE).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return cls()

    def write(self, folder: Path) -> None:
        _write(folder / STATE, json.dumps(asdict(self), indent=1) + "\n")


# -- from Hydra's jobs to ours -----------------------------------------------------------------------------------------


def plan(composed: Sequence[tuple[DictConfig, DictConfig]]) -> tuple[list[Job], Path, int]:
    """The jobs, the sweep's folder, and how many jobs run at once, from each job's config and its ``hydra`` node.

    Raises:
        ConfigError: the jobs cannot be told apart, or have no folder in common.
    """
    folders = {Path(str(hydra.sweep.dir)).resolve() for _, hydra in composed}
    if len(folders) > 1:
        raise ConfigError(
            f"hydra.sweep.dir={sorted(map(str, folders))[0]}: differs between the jobs, because what it is made of is "
            "swept; give all of them one folder: hydra.sweep.dir=outputs/my_sweep"
        )
    at_once = {config.jobs_at_once for config, _ in composed}
    if len(at_once) > 1 or not all(isinstance(jobs, int) and jobs >= 1 for jobs in at_once):
        raise ConfigError(f"jobs_at_once={', '.join(map(str, at_once))}: must be one whole number from 1 up")
    overrides = [_by_key(hydra) for _, hydra in composed]
    swept = [key for key in overrides[0] if key in _params(composed[0][1]) or len({o.get(key) for o in overrides}) > 1]
    folder = folders.pop()
    jobs = []
    for (config, hydra), mine in zip(composed, overrides, strict=True):
        values = {key: mine[key] for key in swept}
        name = _name(values)
        jobs.append(
            Job(
                name=name,
                folder=folder / name,
                swept={key.lstrip("+"): value for key, value in values.items()},
                arguments=_arguments(config, hydra, folder / name, mine),
                config=_digest(config),
                devices=0 if config.trainer.device == "cpu" else config.trainer.n_gpus_per_node,
            )
        )
    _check_devices(jobs, max(at_once))
    names = [job.name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two jobs of the sweep would share the folder {twice[0]}: sweep over values that differ")
    return jobs, folder, at_once.pop()


def _digest(config: DictConfig) -> str:
    """The same for two configs that train the same."""
    container = OmegaConf.to_container(config, resolve=False)
    kept = {key: value for key, value in container.items() if key not in _FOR_SHOW}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _by_key(hydra: DictConfig) -> dict[str, str]:
    """A job's overrides: the value, as it was written, by the key with its ``+``."""
    overrides = OverridesParser.create().parse_overrides(list(hydra.overrides.task))
    return {override.get_key_element(): override.get_value_string() for override in overrides if override.input_line}


def _params(hydra: DictConfig) -> set[str]:
    """What a sweep's file sweeps over, also where it names one value only."""
    return set(hydra.sweeper.get("params") or {})


def _name(swept: Mapping[str, str]) -> str:
    """A folder's name: values lose what a file system or a shell might take amiss."""
    text = ",".join(f"{key.lstrip('+')}={value}" for key, value in sorted(swept.items()))
    name = re.sub(r"[^\w.,=+-]+", "_", re.sub(r"[\[\]{}'\"]", "", text)) or "job"
    return name if len(name) <= 150 else f"{name[:130]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _arguments(config: DictConfig, hydra: DictConfig, folder: Path, overrides: Mapping[str, str]) -> tuple[str, ...]:
    """The command line that composes the same config for a single run in ``folder``."""
    flags = []
    for source in hydra.runtime.config_sources:
        if source.provider == "command-line":
            flags += ["--config-dir", source.path]
        elif source.provider == "main":
            flags += ["--config-path", f"pkg://{source.path}" if source.schema == "pkg" else source.path]
    ours = [f"run_dir={_quoted(str(folder))}"]
    if "trainer.experiment_name" not in overrides:
        ours.append(f"trainer.experiment_name={_quoted(f'{config.trainer.experiment_name}/{folder.name}')}")
    ours += ["hydra.mode=RUN", f"hydra.job.num={hydra.job.num}", f"hydra.job.id={hydra.job.id}"]
    return (*flags, "--config-name", hydra.job.config_name, *hydra.overrides.hydra, *hydra.overrides.task, *ours)


def _check_devices(jobs: Sequence[Job], at_once: int) -> None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    needed = at_once * max(job.devices for job in jobs)
    if visible is not None and at_once > 1 and needed > len(visible.split(",")):
        raise ConfigError(
            f"jobs_at_once={at_once}: jobs of up to {needed // at_once} accelerators (trainer.n_gpus_per_node) need "
            f"{needed}, and CUDA_VISIBLE_DEVICES={visible} names fewer; lower one of the two"
        )


def _quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()


# -- running -----------------------------------------------------------------------------------------------------------


@dataclass
class _Running:
    """A job's process, and what its earlier starts came to: seconds, and bytes of output."""

    job: Job
    process: subprocess.Popen[bytes]
    slot: int
    started: float
    seconds_before: float
    output_before: int
    following: ExitStack


@dataclass
class Sweep:
    """Runs jobs, so many at once, and keeps the table.

    Attributes:
        command: what starts a job, before its arguments.
        show: where the console's lines go.
    """

    jobs: Sequence[Job]
    folder: Path
    at_once: int
    command: Sequence[str]
    show: Callable[[str], None] = field(default=lambda line: print(line, flush=True))

    def __post_init__(self) -> None:
        self.states = {job.name: State.read(job.folder) for job in self.jobs}

    def run(self) -> int:
        """Run what is not done yet.

        Returns:
            The exit status: 0 if every job is done, 1 otherwise.

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

    def _is_done(self, job: Job) -> bool:
        state = self.states[job.name]
        return state.status == "ok" and state.config == job.config

    def _run(self, todo: Sequence[Job]) -> None:
        waiting, running = list(todo), []
        try:
            while waiting or running:
                while waiting and len(running) < self.at_once:
                    slot = min(set(range(self.at_once)) - {one.slot for one in running})
                    running.append(self._start(waiting.pop(0), slot))
                for one in [one for one in running if one.process.poll() is not None]:
                    running.remove(one)
                    self._end(one)
                time.sleep(0.1)
        finally:
            for one in running:
                one.process.terminate()  # not SIGINT, which a process in the background may have been told to ignore
            try:
                for one in running:
                    with suppress(subprocess.TimeoutExpired):
                        one.process.wait(PATIENCE)
            finally:
                for one in running:
                    self._end(one)

    def _start(self, job: Job, slot: int) -> _Running:
        job.folder.mkdir(parents=True, exist_ok=True)
        output = job.folder / OUTPUT
        state = self.states[job.name]
        state.status, state.message, state.config = "running", "", job.config
        self._note(job)
        self.show(f"{self._title(job)}: starts, output in {output}")
        following = ExitStack()
        with output.open("ab") as sink:
            output_before = sink.tell()
            if self.at_once == 1:
                following.enter_context(Follow(job.folder, lambda line: self.show(f"[{job.name}] {line}"), log=OUTPUT))
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
        share = range(slot * job.devices, (slot + 1) * job.devices)
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible is not None else None
        return {"CUDA_VISIBLE_DEVICES": ",".join(names[i] if names else str(i) for i in share)}

    def _end(self, one: _Running) -> None:
        """Note how a job went; one that has not ended yet counts as interrupted."""
        job, status = one.job, one.process.poll()
        one.following.close()
        end_leftovers(job.folder / PROCESSES)  # of a job that was killed
        state = self.states[job.name]
        interrupted = status is None or status in (128 + signal.SIGINT, -signal.SIGINT, -signal.SIGTERM)
        state.status = "ok" if status == 0 else "interrupted" if interrupted else "failed"
        state.seconds = one.seconds_before + time.monotonic() - one.started
        state.steps = steps_done(job.folder)
        state.message = "" if status == 0 else _last_line(job.folder / OUTPUT, one.output_before) or _ending(status)
        self._note(job)
        told = f", {state.message}" if state.message else ""
        self.show(f"{self._title(job)}: {state.status} after {state.steps} steps and {duration(state.seconds)}{told}")

    def _title(self, job: Job) -> str:
        return f"job {self.jobs.index(job) + 1}/{len(self.jobs)} {job.name}"

    def _note(self, job: Job) -> None:
        self.states[job.name].write(job.folder)
        self.write_tables()

    # -- tables --------------------------------------------------------------------------------------------------------

    def write_tables(self) -> str:
        """Write both tables; returns the one for people."""
        swept = list(dict.fromkeys(key for job in self.jobs for key in job.swept))
        figures = {job.name: _win_rates(job.folder) for job in self.jobs}
        roles = sorted({role for rates in figures.values() for role in rates})
        states = [(job, self.states[job.name]) for job in self.jobs]
        rows, lines = [], []
        for job, state in states:
            values = [job.swept.get(key, "") for key in swept]
            rates = [figures[job.name].get(role, (None, None)) for role in roles]
            rows.append([job.name, *values, state.status, state.steps, f"{state.seconds:.1f}", state.message])
            rows[-1] += ["" if rate is None else f"{rate:.4f}" for pair in rates for rate in pair]
            lines.append([*values, state.status, str(state.steps), duration(state.seconds), *map(_change, rates)])
        columns = [f"{role}/win_{when}" for role in roles for when in ("before", "after")]
        header = ["folder", *swept, "status", "steps", "seconds", "message", *columns]
        unfinished = (self.folder / TABLE).with_suffix(".tmp")
        with unfinished.open("w", newline="", encoding="utf-8") as out:
            csv.writer(out).writerows([header, *rows])
        unfinished.replace(self.folder / TABLE)
        report = _markdown([*swept, "status", "steps", "time", *(f"{role} wins" for role in roles)], lines)
        told = [f"- {job.name}: {state.message}" for job, state in states if state.message]
        report += "".join(f"\n{line}" for line in ["", *told] if told)
        _write(self.folder / REPORT, report + "\n")
        return report


def _last_line(output: Path, start: int) -> str:
    """The last line that is not empty after so many bytes, without the entry point's name."""
    with output.open("rb") as printed:
        printed.seek(start)
        lines = printed.read().decode("utf-8", errors="replace").split("\n")
    return next((line.strip().removeprefix("spiral: ") for line in reversed(lines) if line.strip()), "")


def _ending(status: int | None) -> str:
    if status is None:
        return "did not end in time"
    return f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


def _win_rates(run_dir: Path) -> dict[str, tuple[float | None, float | None]]:
    """By game and role, the share of wins in the first and in the last validation; None where there was only one."""
    validations = first_and_last(RecordFolder(run_dir / "games"))
    if not validations:
        return {}
    (first, before), (last, after) = validations
    roles = [name.removesuffix("/win") for name in after if name.endswith("/win")]
    return {
        role.removeprefix("val-core/"): (before.get(f"{role}/win"), after[f"{role}/win"] if last > first else None)
        for role in roles
    }


def _change(rates: tuple[float | None, float | None]) -> str:
    return "" if rates == (None, None) else " -> ".join("-" if rate is None else f"{rate:.1%}" for rate in rates)


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads as one with and without Markdown."""
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)
