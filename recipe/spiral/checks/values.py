"""What kind of value a setting has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def is_whole(value: Any) -> bool:
    """Whether it is a whole number; a boolean is none, though Python says so."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The settings below some, each with its value, by the whole name."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
