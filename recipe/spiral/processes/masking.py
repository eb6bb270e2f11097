"""Keys that a config holds: they work in the run, and are neither written down nor printed.

A key comes in by ``${oc.env:NAME}`` with a name such as OPENAI_API_KEY, by a variable of such a name in
``environment``, or in clear in the ``extra_body`` of an API opponent.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from ..storage.disk import write_whole

_SECRET = re.compile(
    r"(^|[_-])(api)?(key|token|secret|password|passwd|credentials?|authorization)([_-]|$)", re.IGNORECASE
)
_FROM_ENVIRONMENT = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)")
_PASSWORD = re.compile(r"(://[^/\s:@]*):[^/\s@]+@")
#: A shorter value is no key, and might be a part of any other.
_SHORTEST = 8
MASK = "***"


def is_secret(name: str) -> bool:
    """Whether a variable or a field of this name may hold a key."""
    return _SECRET.search(name) is not None


def take_secrets_out(config: DictConfig) -> None:
    """Leave in ``environment`` no keys: they are set in this process already, and its children inherit them."""
    with open_dict(config.environment):
        for name in filter(is_secret, map(str, [*config.environment])):
            del config.environment[name]


def secrets_of(config: DictConfig) -> dict[str, str]:
    """The keys that the unresolved config takes from the environment: what to write in their place, by their values."""
    raw = str(OmegaConf.to_container(config, resolve=False))
    values = {name: os.environ.get(name, "") for name in _FROM_ENVIRONMENT.findall(raw) if is_secret(name)}
    return {value: f"${{oc.env:{name},null}}" for name, value in values.items() if len(value) >= _SHORTEST}


def write_config(file: Path, config: DictConfig, secrets: dict[str, str]) -> None:
    """Write a resolved config without its keys, which were the unresolved one's ``secrets_of``. Where it has some, only
    the user may read it, and Hydra's copies."""
    plain = OmegaConf.to_container(config, resolve=True)
    masked = without_secrets(plain, secrets)
    write_whole(file, OmegaConf.to_yaml(OmegaConf.create(masked)))
    if masked != plain or secrets:
        for private in [file, *(file.parent / ".hydra").rglob("*.yaml")]:
            private.chmod(0o600)


def without_secrets(value: Any, secrets: Mapping[str, str], body: bool = False) -> Any:
    """A copy of a container in which nobody can read keys; ``body``: inside of an ``extra_body``, where names tell of
    keys."""
    if isinstance(value, dict):
        copied = {name: without_secrets(inner, secrets, body or name == "extra_body") for name, inner in value.items()}
        for name, inner in value.items():
            in_clear = isinstance(inner, str) and not any(secret in inner for secret in secrets)
            if body and is_secret(str(name)) and in_clear:
                copied[name] = MASK
        return copied
    if isinstance(value, list):
        return [without_secrets(inner, secrets, body) for inner in value]
    if isinstance(value, str):
        for secret, instead in secrets.items():
            value = value.replace(secret, instead)
        return _PASSWORD.sub(rf"\1:{MASK}@", value)
    return value
