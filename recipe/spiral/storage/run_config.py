"""The config that a run's folder keeps, which programs without a run's resolvers read too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException


def load_config(file: Path) -> DictConfig:
    """The config; interpolations stay as they are written. Raises OSError: there is none that can be read; ValueError:
    it is damaged, or is no mapping."""
    try:
        config = OmegaConf.load(file)
    except OSError:
        raise
    except Exception as error:  # damaged YAML raises errors of PyYAML's, OmegaConf's and Python's own
        raise ValueError(f"{file}: is damaged: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(config, DictConfig):
        raise ValueError(f"{file}: is not a config")
    return config


def setting(config: DictConfig | None, key: str) -> Any:
    """A value of the config, as JSON has it; None if it is not known."""
    try:
        value = None if config is None else OmegaConf.select(config, key)
    except OmegaConfBaseException:  # it needs one of the training's resolvers
        return None
    return OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
