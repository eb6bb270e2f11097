"""How a setting is refused: the error, and its value as it is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from omegaconf.errors import OmegaConfBaseException


class ConfigError(ValueError):
    """The config cannot be run; the message names the setting, its value and what to do."""


def require(condition: bool, message: str) -> None:
    """Raises: ConfigError: the condition does not hold."""
    if not condition:
        raise ConfigError(message)


@contextmanager
def refusals() -> Iterator[None]:
    """What the block refuses, by another error, is a ConfigError as well."""
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, ImportError, OmegaConfBaseException) as error:
        raise ConfigError(str(error)) from error


def written(value: Any) -> str:
    """A value as it stands on a command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
