"""The config that a run's folder keeps, which programs without a run's resolvers read too.

The folder may be a stranger's: what its config would have from the environment of whoever reads it is missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from .disk import real


def load_config(file: Path) -> DictConfig:
    """The config, without what would ask a resolver. Raises OSError: there is none that can be read; ValueError: it is
    damaged, or is no mapping."""
    try:
        config = OmegaConf.load(real(file))
    except OSError:
        raise
    except Exception as error:  # damaged YAML raises errors of PyYAML's, OmegaConf's and Python's own
        raise ValueError(f"{file}: is damaged: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(config, DictConfig):
        raise ValueError(f"{file}: is not a config")
    return OmegaConf.create(unresolved(OmegaConf.to_container(config)))


def unresolved(value: Any, references: bool = True) -> Any:
    """A copy of a container without what asks a resolver, or may be put together to something that does.

    ``references``: whether plain ones to other keys, as ``${run_dir}``, stay.
    """
    if isinstance(value, dict):
        return {key: unresolved(inner, references) for key, inner in value.items()}
    if isinstance(value, list):
        return [unresolved(inner, references) for inner in value]
    asks = isinstance(value, str) and "${" in value and not (references and not re.search(r"[:\\]", value))
    return MISSING if asks else value


def setting(config: DictConfig | None, key: str) -> Any:
    """A value of the config, as JSON has it; None if it is not known."""
    try:
        value = None if config is None else OmegaConf.select(config, key)
        value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:
        return None
    value = unresolved(value, references=False)
    return None if value == MISSING else value
