"""What a run's folder keeps besides checkpoints and games: its config, the settings that starts changed, and all
metrics. Programs without a run's resolvers read them, too.

The folder may be a stranger's: what its config would have from the environment of whoever reads it is missing.
"""

from __future__ import annotations

import io
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .disk import append_line, write_whole

#: The config of a run's last start, and what an exported folder has of it.
CONFIG, EXPORTED = "config.yaml", "spiral.yaml"
#: The settings that a start changed, with the step from which they hold.
CHANGES = "settings.jsonl"
METRICS = "metrics.jsonl"
#: What each start makes for itself.
_OF_A_START = (
    *("ray_kwargs", "run_dir", "environment", "trainer.resume_", "fsp.initial"),
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
)

# -- the config --------------------------------------------------------------------------------------------------------


def config_file(run_dir: Path) -> Path:
    """The config of a run's last start. An exported folder has what it takes of the run's config to play as the run
    does."""
    own, exported = run_dir / CONFIG, run_dir / EXPORTED
    return exported if exported.is_file() and not own.is_file() else own


def load_config(file: Path) -> DictConfig:
    """The config, without what would be resolved. Raises OSError: there is none that can be read; ValueError: it is
    damaged, empty, or no mapping."""
    content = file.read_bytes()
    try:
        # no run writes aliases, with which some hundred bytes stand for gigabytes
        if b"*" in content and any(isinstance(token, yaml.AliasToken) for token in yaml.scan(content)):
            raise ValueError("it has aliases")
        config = OmegaConf.load(io.BytesIO(content))
    except Exception as error:  # damaged YAML raises errors of PyYAML's, OmegaConf's and Python's own
        raise ValueError(f"{file}: is damaged: {' '.join(str(error).split())[:200]}") from error
    if not config or not isinstance(config, DictConfig):
        raise ValueError(f"{file}: is not a config, or an empty one")
    return OmegaConf.create(unresolved(OmegaConf.to_container(config)))


def config_of(run_dir: Path) -> DictConfig | None:
    """The config of a run's last start; None if there is none, or it is damaged."""
    try:
        return load_config(config_file(run_dir))
    except (OSError, ValueError, OmegaConfBaseException):
        return None


def unresolved(value: Any) -> Any:
    """A copy of a container without what asks a resolver, or refers to other values: what a run keeps is resolved, and
    references to references may stand for a text of any length."""
    if isinstance(value, dict):
        return {key: unresolved(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [unresolved(inner) for inner in value]
    return MISSING if isinstance(value, str) and "${" in value else value


def setting(config: DictConfig | None, key: str) -> Any:
    """A value of the config, as JSON has it; None if it is not known."""
    try:
        value = None if config is None else OmegaConf.select(config, key)
    except OmegaConfBaseException:
        return None
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value


# -- the settings that a start changed ---------------------------------------------------------------------------------


def note_changes(
    run_dir: Path, step: int, before: DictConfig, now: DictConfig, write: bool = True
) -> dict[str, tuple[Any, Any]]:
    """Note which settings a start at ``step`` changes, and return them with both values.

    Args:
        before: the config of the last start. What starts since ``step`` have changed is taken back: the run went back.
        now: this start's. What is an interpolation in it has no value yet, and is no change.
    """
    file = run_dir / CHANGES
    noted = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    was, asked = flat(OmegaConf.to_container(before)), flat(unresolved(OmegaConf.to_container(now)))
    for later in reversed([entry for entry in noted if entry["step"] >= step]):
        was |= {name: values[0] for name, values in later["changed"].items()}
    changed = {
        name: (was[name], value)
        for name, value in asked.items()
        if name in was and was[name] != value and MISSING not in (was[name], value) and not name.startswith(_OF_A_START)
    }
    kept = [entry for entry in noted if entry["step"] < step] + [{"step": step, "changed": changed}]
    if write:
        write_whole(file, "".join(json.dumps(entry) + "\n" for entry in kept))
    return changed


def flat(values: Any, name: str = "") -> dict[str, Any]:
    """The values of a config by their whole names; a list is one value."""
    if not isinstance(values, Mapping):
        return {name: values}
    inside = [flat(value, f"{name}.{key}" if name else str(key)) for key, value in values.items()]
    return {key: value for part in inside for key, value in part.items()}


# -- metrics -----------------------------------------------------------------------------------------------------------


class Logged(msgspec.Struct, frozen=True):
    """A line of the metrics' file: what was measured at a step, in seconds since 1970. A step may have several lines. A
    metric that is not a finite number is null."""

    step: int
    time: float
    metrics: dict[str, float | None]


_decode = msgspec.json.Decoder(Logged).decode


class MetricsFile:
    """Writes all metrics of a run, whatever trackers it has; verl's trackers have the same method ``log``."""

    def __init__(self, run_dir: Path, clock: Callable[[], float] = time.time) -> None:
        self._file, self._clock = run_dir / METRICS, clock

    def log(self, data: Mapping[str, Any], step: int) -> None:
        """Append what was measured at a step. What is no number is left out."""
        numbers = {name: number for name, value in data.items() if (number := _number(value)) is not None}
        metrics = {name: number if math.isfinite(number) else None for name, number in numbers.items()}
        append_line(self._file, json.dumps({"step": step, "time": round(self._clock(), 3), "metrics": metrics}))

    def validated(self, step: int) -> bool:
        """Whether there are metrics of a validation at a step."""
        logged = (logged for logged, _ in read_metrics(self._file) if logged.step == step)
        return any(name.startswith("val-") for line in logged for name in line.metrics)

    def cut_back(self, step: int) -> None:
        """Remove what was logged after ``step``."""
        if self._file.is_file():
            with self._file.open("rb") as lines:
                kept = (line for line in lines if (logged := _parse(line)) is not None and logged.step <= step)
                write_whole(self._file, kept)


def read_metrics(file: Path, start: int = 0) -> Iterator[tuple[Logged, int]]:
    """What was logged, from byte ``start`` on, each with the byte after it. A line that is torn, or still being
    written, or of another form is passed over."""
    if not file.is_file():
        return
    with file.open("rb") as lines:
        lines.seek(start)
        for line in lines:
            start += len(line)
            if line.endswith(b"\n") and (logged := _parse(line)) is not None:
                yield logged, start


def _parse(line: bytes) -> Logged | None:
    try:
        return _decode(line)
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    """A metric as a number of eight digits; None if it is none."""
    try:
        return None if isinstance(value, str) else float(f"{float(value):.8g}")
    except (TypeError, ValueError):
        return None
