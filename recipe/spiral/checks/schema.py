"""The type and the range of each of SPIRAL's own settings, and of verl's that users set.

They stand in ``settings.yaml``, in the words of the message that refuses another value; the comments in
``config/spiral_trainer.yaml`` say what the settings do.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping
from types import NoneType
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from .errors import require, written
from .names import TABLES, verls_defaults

#: What a value of each setting must be.
KINDS: dict[str, str] = TABLES["kinds"]
_ROLLOUT = "actor_rollout_ref.rollout."
_TYPES: dict[str, type] = {"text": str, "a list": list, "a mapping": dict, "null": NoneType}
_SIGNS = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}


def check_values(config: DictConfig, values: Mapping[str, Any]) -> None:
    """Check the type and the range of every setting that is described; ConfigError says what a value must be.

    Where verl's default of another one is a boolean or a number, it must be that: verl takes any text for true and null
    for false, and what is no number fails only in a worker. ``values`` are those of the config, not resolved.
    """
    for setting, kind in KINDS.items():
        _check(config, setting, kind)
    for setting, default in verls_defaults().items():
        value = values.get(setting, default)
        kind = "true or false" if isinstance(default, bool) else "a number" if isinstance(default, int | float) else ""
        link = isinstance(value, str) and "${" in value
        free = setting in TABLES["instead"] or bool({*setting.split(".")} & {*TABLES["free"]})
        passes = not kind or (value is None and free) or link or setting in KINDS
        require(passes or is_of(value, kind), f"{setting}={written(value)}: must be {kind}")


def _check(config: DictConfig, setting: str, kind: str) -> None:
    value = OmegaConf.select(config, setting)
    plain = OmegaConf.to_container(value) if OmegaConf.is_config(value) else value
    require(is_of(plain, kind), f"{setting}={written(value)}: must be {kind}")


def is_of(value: Any, kind: str) -> bool:
    """Whether a value, as JSON has it, is what the words of a kind say."""
    if kind == "true or false":
        return isinstance(value, bool)
    return any(_is_one(value, part) for part in kind.split(" or "))


def _is_one(value: Any, kind: str) -> bool:
    if kind.startswith("["):
        inner = kind[1:-1].split(", ")
        return isinstance(value, list) and len(value) == len(inner) and all(map(_is_one, value, inner))
    if kind.startswith("names of "):
        names = value if isinstance(value, list) else [value]
        return all(_is_one(name, kind.replace("names", "one", 1)) for name in names)
    if kind.startswith("one of "):
        return any(_is_one(value, choice) for choice in kind.removeprefix("one of ").split(", "))
    name, *bounds = re.split(r" and | (?=[<>])", kind)
    if name in ("a whole number", "a number"):
        number = type(value) is int or (name == "a number" and type(value) is float)
        fits = (_SIGNS[sign](value, float(bound)) for sign, bound in map(str.split, bounds))
        return number and abs(value) < 1e300 and all(fits)  # NaN is not below it, either
    if name in _TYPES:
        return isinstance(value, _TYPES[name]) and value != ""
    choice = yaml.safe_load(name)  # a plain off is false
    return (type(value) is type(choice) and value == choice) or (choice is False and value == name)
