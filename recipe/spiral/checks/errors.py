"""How a setting is refused: the error, and its value as it is written."""

from __future__ import annotations

from typing import Any


class ConfigError(ValueError):
    """The config cannot be run; the message names the setting, its value and what to do."""


def require(condition: bool, message: str) -> None:
    """Raises: ConfigError: the condition does not hold."""
    if not condition:
        raise ConfigError(message)


def written(value: Any) -> str:
    """A value as it stands on a command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
