"""What a refused setting is told with."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from .values import is_whole


class ConfigError(ValueError):
    """The config cannot be run; the message names the setting, its value and what to do."""


def require(condition: bool, message: str) -> None:
    """Raises: ConfigError: the condition does not hold."""
    if not condition:
        raise ConfigError(message)


def whole(config: DictConfig, setting: str, least: int) -> None:
    """Raises: ConfigError: the setting is no whole number, or a smaller one."""
    value = OmegaConf.select(config, setting)
    require(is_whole(value) and value >= least, f"{setting}={value}: must be a whole number from {least} up")
