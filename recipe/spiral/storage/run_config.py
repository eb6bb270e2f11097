"""The config that a run's folder keeps, which programs without a run's resolvers read too.

The folder may be a stranger's: what its config would have from the environment of whoever reads it is missing.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException


def load_config(file: Path) -> DictConfig:
    """The config, without what would be resolved. Raises OSError: there is none that can be read; ValueError: it is
    damaged, empty, or no mapping."""
    content = file.read_bytes()
    try:
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
