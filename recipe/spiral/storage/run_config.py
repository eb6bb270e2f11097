"""The config that a run's folder keeps, which programs without a run's resolvers read too.

The folder may be a stranger's: what its config would have from the environment of whoever reads it is missing.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .disk import write_whole

#: In a run's folder: the settings that a start changed, with the step from which they hold.
CHANGES = "settings.jsonl"
#: What each start makes for itself.
_OF_A_START = (
    *("ray_kwargs", "run_dir", "environment", "trainer.resume_"),
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
)


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
        value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:
        return None
    return None if (value := unresolved(value)) == MISSING else value


def note_changes(
    run_dir: Path, step: int, before: DictConfig, now: DictConfig, write: bool = True
) -> dict[str, tuple[Any, Any]]:
    """Note which settings a start at ``step`` changes, and return them with both values.

    Args:
        before: the config of the last start. What starts after ``step`` have changed is taken back: the run went back.
        now: this start's. What is an interpolation in it has no value yet, and is no change.
    """
    file = run_dir / CHANGES
    noted = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.is_file() else []
    was, asked = _flat(OmegaConf.to_container(before)), _flat(unresolved(OmegaConf.to_container(now)))
    for later in reversed([entry for entry in noted if entry["step"] > step]):
        was |= {name: values[0] for name, values in later["changed"].items()}
    changed = {
        name: (was[name], value)
        for name, value in asked.items()
        if name in was and was[name] != value and MISSING not in (was[name], value) and not name.startswith(_OF_A_START)
    }
    kept = [entry for entry in noted if entry["step"] <= step] + [{"step": step, "changed": changed}]
    if write:
        write_whole(file, "".join(json.dumps(entry) + "\n" for entry in kept))
    return changed


def _flat(values: Any, name: str = "") -> dict[str, Any]:
    """The values of a config by their whole names; a list is one value."""
    if not isinstance(values, Mapping):
        return {name: values}
    inside = [_flat(value, f"{name}.{key}" if name else str(key)) for key, value in values.items()]
    return {key: value for part in inside for key, value in part.items()}
