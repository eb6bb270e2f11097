"""All settings of a config by their whole names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf


def walk(values: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting and every section, by its whole name, with its value."""
    for key, value in values.items():
        yield f"{place}{key}", value
        if isinstance(value, Mapping):
            yield from walk(value, f"{place}{key}.")


def values(config: DictConfig, resolve: bool) -> dict[str, Any]:
    """Every setting by its name; without ``resolve`` as it is written: one that follows from another is a link."""
    container: Any = OmegaConf.to_container(config, resolve=resolve, enum_to_str=True)
    return {name: value for name, value in walk(container) if not isinstance(value, Mapping)}
