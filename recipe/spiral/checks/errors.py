"""The error that refuses a setting."""

from __future__ import annotations


class ConfigError(ValueError):
    """The config cannot be run; the message names the setting, its value and what to do."""


def require(condition: bool, message: str) -> None:
    """Raises: ConfigError: the condition does not hold."""
    if not condition:
        raise ConfigError(message)
