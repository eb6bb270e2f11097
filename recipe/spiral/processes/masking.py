"""Keys that a config holds: they work in the run, and are neither written down nor printed.

A key comes in by ``${oc.env:NAME}``, by a variable of the environment with a name such as OPENAI_API_KEY, or in clear
where a field's name tells: in an ``extra_body``, in ``environment``, in headers. Whatever writes settings, a command
line or an error does it through ``without_secrets``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ..storage.disk import write_whole
from .as_written import as_written

_SECRET = re.compile(
    r"(^|[_-]|(?<=[a-z])(?=[A-Z]))"
    r"(?i:(api)?(key|token(?!_len)|secret|password|passwd|passphrase|credentials?|auth|authorization|bearer|cookies?))"
    r"([_-]|$|(?<=[a-z])(?=[A-Z]))"
)
_FROM_ENVIRONMENT = re.compile(r"\$\{oc\.env:\s*([A-Za-z_]\w*)\s*(?:,\s*['\"]?([^'\"${}]*))?")
#: In an address: the password of its user, or the user where there is none, as a token is; or a key in its query.
_IN_ADDRESS = re.compile(
    r"(://(?:[^/\s:@]*:)?)[^/\s@]+(?=@)"
    r"|([?&](?:[\w-]*(?:key|token|secret|passw|credential)[\w-]*|sig|signature|auth)=)[^&\s'\"]+",
    re.IGNORECASE,
)
#: In a text, as JSON, YAML and command lines have it: a field that may be a key's, and a value with a digit in it.
_IN_TEXT = re.compile(
    r"""
    (?<![\w-])(?:(?=[\w-]*(?:key|token|secret|passw|passphrase|credential|auth|cookie))([\w-]+)(?<!error)
        \\*["']?\s{0,9}[:=]\s{0,9}(?:\\*["']?\$\{oc\.env:\w+,\s{0,9})?|(?=bearer))
    (?:(\\*["'])(?:(?:bearer|basic)\s{1,9})?((?=(?:(?!\2).){0,999}?\d)(?:(?!\2|\$\{).){8,999})(?=\2)
        |\\*["']?(?:(?:bearer|basic)\s{1,9})?((?=[^\s"'\\,;{}[\]()<>]*\d)[^\s"'\\,;{}[\]()<>]{8,}))
    """,
    re.IGNORECASE | re.VERBOSE,
)
#: Where a field's name tells of a key. Elsewhere it is another thing, as in data.prompt_key.
_BODIES = ("extra_body", "environment", "env_vars", "headers", "default_headers", "extra_headers", "engine_kwargs")
#: A shorter value is no key, and might be a part of any other.
_SHORTEST = 8
MASK = "***"
#: The keys that this process has learnt: what is written in their place, by their values.
KNOWN: dict[str, str] = {}


def is_secret(name: str) -> bool:
    """Whether a variable or a field of this name may hold a key."""
    return _SECRET.search(name) is not None


def take_secrets_out(config: DictConfig) -> None:
    """Learn a config's keys, and leave none in ``environment``, but where it is: they are set in this process already,
    and its children inherit them."""
    learn(config)
    for name in filter(is_secret, map(str, [*config.environment])):
        config.environment[name] = f"${{oc.env:{name},null}}"


def secrets_of(config: DictConfig) -> dict[str, str]:
    """The keys that the unresolved config has: what to write in their place, by their values."""
    found: dict[str, str] = {}
    for place, name, text in _texts(OmegaConf.to_container(config, resolve=False)):
        in_clear = is_secret(name)
        for variable, default in _FROM_ENVIRONMENT.findall(text):
            value = os.environ.get(variable, "")
            if in_clear or is_secret(variable) or not value.startswith("/"):  # else a folder
                found |= {default: MASK if is_secret(variable) else "", value: f"${{oc.env:{variable},null}}"}
                in_clear = False
        if in_clear:
            with suppress(OmegaConfBaseException):
                found.setdefault(str(OmegaConf.select(config, place) if "${" in text else text), MASK)
        for inside in _IN_TEXT.finditer(text) if name else ():
            if is_secret(inside[1] or "key"):
                found.setdefault(inside[3] or inside[4], MASK)
    return {value: instead for value, instead in found.items() if len(value) >= _SHORTEST}


def _texts(value: Any, place: str = "", name: str = "", body: bool = False) -> Iterator[tuple[str, str, str]]:
    """Each text in a container: its place, the field that may tell of a key ("": none does), and itself."""
    if isinstance(value, dict):
        for key, inner in value.items():
            told = name if is_secret(name) else str(key) if body else ""
            yield from _texts(inner, f"{place}.{key}" if place else str(key), told, body or key in _BODIES)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _texts(inner, f"{place}.{number}", name, body)
    elif isinstance(value, str | int | float):
        yield place, name, str(value)


def learn(config: DictConfig) -> None:
    """Let ``without_secrets`` know a config's keys, in this process and its copies."""
    KNOWN.update(secrets_of(config))


def write_config(file: Path, config: DictConfig) -> None:
    """Write a config without its keys, and values of the environment as they are written. Where there are keys, only
    the user may read it, and Hydra's copies."""
    plain = as_written(config)
    masked = without_secrets(plain)
    write_whole(file, OmegaConf.to_yaml(OmegaConf.create(masked)))
    if masked != plain or KNOWN:
        for private in [file, *(file.parent / ".hydra").rglob("*.yaml")]:
            private.chmod(0o600)


def hide_hydras(folder: Path) -> None:
    """Take the keys out of what Hydra notes in a job's folder, or in a sweep's."""
    for file in (*folder.glob(".hydra/*.yaml"), *folder.glob("multirun.yaml")):
        plain = yaml.load(file.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # OmegaConf takes 0.1 s
        if without_secrets(plain) != plain:
            masked = without_secrets(OmegaConf.to_container(OmegaConf.load(file)))
            write_whole(file, OmegaConf.to_yaml(OmegaConf.create(masked)))
        keep_private(file)


def keep_private(file: Path) -> None:
    """Let only the user read a file that may hold settings, if there are keys among them."""
    if KNOWN:
        file.chmod(0o600)


def without_secrets(value: Any) -> Any:
    """A copy of a text or a container in which nobody can read keys: those of the environment, and those that this
    process has learnt."""
    from_environment = {
        text: f"${{oc.env:{name},null}}"
        for name, text in os.environ.items()
        if is_secret(name) and len(text) >= _SHORTEST and not text.startswith("/")
    }
    # the longest first: one may be a part of another
    return _masked(value, sorted((from_environment | KNOWN).items(), key=lambda item: -len(item[0])))


def _masked(value: Any, known: Sequence[tuple[str, str]], name: str = "", body: bool = False) -> Any:
    if isinstance(value, dict):
        return {
            _masked(key, known): _masked(
                inner, known, name if is_secret(name) else str(key) if body else "", body or key in _BODIES
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_masked(inner, known, name, body) for inner in value]
    if isinstance(value, int | float) and is_secret(name) and len(str(value)) >= _SHORTEST:
        return MASK
    if isinstance(value, str):
        text = value
        for secret, instead in known:
            text = text.replace(secret, instead)
        if is_secret(name) and text == value and "${" not in text:
            return MASK
        text = _IN_ADDRESS.sub(lambda found: f"{found[1] or found[2]}{MASK}", text)
        return _IN_TEXT.sub(_without_value, text)
    return value


def _without_value(found: re.Match[str]) -> str:
    return found[0].removesuffix(found[3] or found[4]) + MASK if is_secret(found[1] or "key") else found[0]
