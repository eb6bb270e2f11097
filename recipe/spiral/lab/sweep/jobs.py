"""The jobs of a sweep: each has a folder, which holds its state, and a command line."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Quote, QuotedString
from omegaconf import DictConfig, OmegaConf

from ...checks import ConfigError, check
from ...checks.errors import refusals, require
from ...checks.names import walk
from ...checks.resumption import finished
from ...checks.schema import check_values
from ...processes.cluster import cluster_address
from ...processes.masking import without_secrets
from ...processes.starting import choose_checkpoint
from ...processes.terminal import note
from ...storage.disk import unwritable, write_whole
from ..planning.engines import devices

#: In a job's folder: the file with what it printed, and the file with its state.
OUTPUT = "output.txt"
STATE = "job.json"

#: "stopped": by the guard (``guard.action=stop``).
Status = Literal["waiting", "running", "ok", "stopped", "failed", "interrupted"]
#: Settings that change how a job is run or shown, and not the result of its training.
_FOR_SHOW = ("jobs_at_once", "verbose")


@dataclass(frozen=True)
class Job:
    """One run of a sweep."""

    name: str  # its folder's, made of what is swept
    folder: Path  # its ``run_dir``
    swept: Mapping[str, str]  # the overrides in which it differs from the others, by key
    arguments: tuple[str, ...] = ()  # what the entry point is started with
    config: str = ""  # a digest of the composed config, by which a second start recognises a job that is done
    devices: int = 0  # how many accelerators it takes, where jobs run side by side; 0 on a CPU


@dataclass
class State:
    """The state of a job, which is kept in its folder."""

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
        write_whole(folder / STATE, json.dumps(asdict(self), indent=1) + "\n")


def plan(composed: Sequence[tuple[DictConfig, DictConfig]]) -> tuple[list[Job], Path, int]:
    """The jobs, the sweep's folder, and how many jobs run at once, from each job's config and its ``hydra`` node.

    Raises:
        ConfigError: the jobs cannot be told apart, or have no folder in common.
    """
    overrides = [_by_key(hydra) for _, hydra in composed]
    params = composed[0][1].sweeper.get("params") or {}  # what a sweep's file names, also where it is one value only
    if {key.lstrip("+") for key in params} - {
        key.lstrip("+") for key in overrides[0]
    }:  # Hydra has read the file only for the jobs
        named = ",".join(dict.fromkeys(mine.get("+sweep", "") for mine in overrides))
        raise ConfigError(f"+sweep={named}: sweeps cannot be swept; give one")
    folders = {Path(str(hydra.sweep.dir)).resolve() for _, hydra in composed}
    if len(folders) > 1:
        raise ConfigError(
            f"hydra.sweep.dir={sorted(map(str, folders))[0]}: differs between the jobs, because what it is made of is "
            "swept; give all of them one folder: hydra.sweep.dir=outputs/my_sweep"
        )
    at_once = {config.jobs_at_once for config, _ in composed}
    if len(at_once) > 1 or not all(isinstance(jobs, int) and jobs >= 1 for jobs in at_once):
        raise ConfigError(
            f"jobs_at_once={', '.join(map(str, at_once))}: must be a whole number >= 1, the same for all jobs"
        )
    if at_once != {1} and any(cluster_address(config) for config, _ in composed):
        raise ConfigError(
            f"jobs_at_once={', '.join(map(str, at_once))}: with RAY_ADDRESS all jobs would be in one cluster, whose "
            "helper processes have one name; take jobs_at_once=1"
        )
    if len(composed) == 1:
        note("-m: nothing is swept, so this is one job")
    swept = [key for key in overrides[0] if key in params or len({o.get(key) for o in overrides}) > 1]
    folder = folders.pop()
    require(not (why := unwritable(folder)), f"hydra.sweep.dir={folder}: {why}; give another folder")
    jobs = []
    for (config, hydra), mine in zip(composed, overrides, strict=True):
        values = without_secrets({key: mine[key] for key in swept})
        name = _name(values)
        jobs.append(
            Job(
                name=name,
                folder=folder / name,
                swept={key.lstrip("+"): value for key, value in values.items()},
                arguments=_arguments(config, hydra, folder / name),
                config=_digest(config),
                devices=_devices(config) if max(at_once) > 1 else 0,
            )
        )
    _check_devices(jobs, max(at_once))
    names = [job.name for job in jobs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"two jobs of the sweep would share the folder {twice[0]}: sweep over values that differ")
    taken: dict[Path, str] = {}
    for each, job in zip(composed, jobs, strict=True):
        checkpoints = Path(str(of_job(*each, job.folder).trainer.default_local_dir)).resolve()
        require(
            taken.setdefault(checkpoints, job.name) == job.name,
            f"trainer.default_local_dir={checkpoints}: is that of job {taken[checkpoints]}, too; leave it out, or make "
            f"it of run_dir: '/disk${{run_dir}}' (job {job.name})",
        )
    return jobs, folder, at_once.pop()


def of_job(config: DictConfig, hydra: DictConfig, folder: Path) -> DictConfig:
    """The config with which a job of a sweep trains in ``folder``."""
    mine = config.copy()
    mine.run_dir = str(folder)
    if "trainer.experiment_name" not in _by_key(hydra):
        mine.trainer.experiment_name = f"{config.trainer.experiment_name}/{folder.name}"
    return mine


def check_jobs(composed: Sequence[tuple[DictConfig, DictConfig]], jobs: Sequence[Job]) -> None:
    """Refuse the sweep, by a ConfigError, if a job would be refused, as by a dry run: before the first has trained."""
    from ..planning.dry_run import look_at_model

    for each, job in zip(composed, jobs, strict=True):
        mine = of_job(*each, job.folder)
        try:
            choose_checkpoint(mine)
            if not finished(mine):
                check(mine)
                look_at_model(mine)
        except ConfigError as error:
            raise ConfigError(f"{error} (job {job.name})") from error


def _digest(config: DictConfig) -> str:
    """The same for two configs that train the same."""
    container = OmegaConf.to_container(config, resolve=False)
    kept = {key: value for key, value in container.items() if key not in _FOR_SHOW}
    return hashlib.sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def _by_key(hydra: DictConfig) -> dict[str, str]:
    """A job's overrides: the value, as it was written, by the key with its ``+``."""
    overrides = OverridesParser.create().parse_overrides(list(hydra.overrides.task))
    return {override.get_key_element(): override.get_value_string() for override in overrides if override.input_line}


def _name(swept: Mapping[str, str]) -> str:
    """A folder's name: values lose what a file system or a shell might take amiss."""
    text = ",".join(f"{key.lstrip('+')}={value}" for key, value in sorted(swept.items()))
    name = re.sub(r"[^\w.,=+-]+", "_", re.sub(r"[\[\]{}'\"]", "", text)) or "job"
    return name if len(name) <= 150 else f"{name[:130]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _arguments(config: DictConfig, hydra: DictConfig, folder: Path) -> tuple[str, ...]:
    """The command line that composes the same config for a single run in ``folder``."""
    flags = []
    for source in hydra.runtime.config_sources:
        if source.provider == "command-line":
            flags += ["--config-dir", source.path]
        elif source.provider == "main":
            flags += ["--config-path", f"pkg://{source.path}" if source.schema == "pkg" else source.path]
    mine = of_job(config, hydra, folder)
    ours = [f"run_dir={_quoted(mine.run_dir)}"]
    if mine.trainer.experiment_name != config.trainer.experiment_name:
        ours.append(f"trainer.experiment_name={_quoted(mine.trainer.experiment_name)}")
    ours += ["hydra.mode=RUN", f"hydra.job.num={hydra.job.num}", f"hydra.job.id={hydra.job.id}"]
    return (*flags, "--config-name", hydra.job.config_name, *hydra.overrides.hydra, *hydra.overrides.task, *ours)


def _devices(config: DictConfig) -> int:
    if config.trainer.device == "cpu":
        return 0
    with refusals():
        check_values(config, dict(walk(OmegaConf.to_container(config, resolve=False))))
        return devices(config)


def _check_devices(jobs: Sequence[Job], at_once: int) -> None:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    needed = at_once * max(job.devices for job in jobs)
    if visible is not None and at_once > 1 and needed > len(visible.split(",")):
        raise ConfigError(
            f"jobs_at_once={at_once}: jobs of up to {needed // at_once} accelerators (trainer.n_gpus_per_node, and "
            f"engines' own) need {needed}, and CUDA_VISIBLE_DEVICES={visible} names fewer; lower one of the two"
        )


def _quoted(text: str) -> str:
    return QuotedString(text, Quote.single).with_quotes()
