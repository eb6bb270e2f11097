"""``${oc.env:NAME}`` in settings: a value of the environment, which may be a key whatever its name is.

It works in the run. In our files it stays as it is written, and in the settings of an endpoint, which trackers and
verl's own print show, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omegaconf import OmegaConf
from omegaconf.resolvers import oc

_asked: list[str] = []


def _oc_env(*arguments: Any) -> Any:
    _asked.append(str(arguments[0]))
    return oc.env(*arguments)


OmegaConf.register_new_resolver("oc.env", _oc_env, replace=True)  # OmegaConf's own, and whether it was asked


def as_written(config: Any) -> Any:
    """A config as a container: resolved, but for what is read from the environment, which stays as it is written."""
    raw = OmegaConf.to_container(config, resolve=False)
    if isinstance(raw, dict):
        return {name: _value(config, name, raw[name]) for name in raw}
    return [_value(config, place, value) for place, value in enumerate(raw)] if isinstance(raw, list) else raw


def _value(config: Any, name: Any, raw: Any) -> Any:
    if isinstance(raw, dict | list):
        return as_written(config[name])
    if not isinstance(raw, str) or "${" not in raw:
        return raw
    value, asked = _resolved(config, name)
    return raw if asked else value


def _resolved(config: Any, name: Any) -> tuple[Any, bool]:
    """A value, and whether something in it is read from the environment."""
    _asked.clear()
    value = config[name]
    if OmegaConf.is_config(value):
        value = OmegaConf.to_container(value, resolve=True)
    return value, bool(_asked)


def refuse_environment(entries: Any, setting: str, kind: str) -> None:
    """Refuse values of the environment in those entries of a list that are of a kind. Raises: ValueError."""
    for entry in entries if OmegaConf.is_list(entries) else ():
        if not OmegaConf.is_dict(entry) or entry.get("kind") != kind:
            continue
        names: Iterable[str] = map(str, entry)
        for name in names:
            if _resolved(entry, name)[1]:
                raise ValueError(
                    f"{setting}: {name}: a value of the environment would be shown; an endpoint's key is named by its "
                    "variable: api_key_env: NAME"
                )
