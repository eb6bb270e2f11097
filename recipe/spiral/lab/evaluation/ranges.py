"""The ranges of settings that are numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf


def within(least: float, most: float = math.inf) -> Any:
    """A field whose value is a number from ``least`` to ``most``, or null where its type allows that."""
    return field(metadata={"within": (least, most)})


def out_of_range(config: DictConfig, section: type, place: str = "") -> Iterator[str]:
    """What is wrong with numbers in a composed config."""
    for each in fields(section):
        name, value = place + each.name, config[each.name]
        if isinstance(value, DictConfig) and OmegaConf.get_type(value) is not dict:
            yield from out_of_range(value, OmegaConf.get_type(value), f"{name}.")
        elif value is not None and "within" in each.metadata:
            least, most = each.metadata["within"]
            if not least <= value <= most:
                yield f"{name}={value}: must be " + (
                    f"at least {least}" if most == math.inf else f"from {least} to {most}"
                )
