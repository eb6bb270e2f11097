"""Settings that had another name in an earlier version, and still work under it for one version.

The table is applied to what a user gives (command line, presets) and to the config that a run's folder keeps.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

#: The old name of each setting, and its new one.
RENAMED = {"rules.cut_off": "rules.truncated", "chance": "randomness"}


def rename(config: DictConfig) -> list[str]:
    """Move the values of renamed settings to their new names, in place; returns the old names that were there."""
    renamed = []
    for old, new in RENAMED.items():
        parent, _, name = old.rpartition(".")
        section = OmegaConf.select(config, parent) if parent else config
        if isinstance(section, DictConfig) and name in section:
            with open_dict(section):
                OmegaConf.update(config, new, section.pop(name), force_add=True)
            renamed.append(old)
    return renamed


def rename_override(override: str) -> str:
    """A command-line override (``key=value``, with or without ``+``) under the setting's new name."""
    match = re.match(r"\+{0,2}([\w.]+)(=.*)", override, re.DOTALL)
    return f"{RENAMED[match[1]]}{match[2]}" if match and match[1] in RENAMED else override


def load_config(file: Path) -> DictConfig:
    """The config that a run's folder keeps, under today's names. It may be a stranger's: what it would have from the
    environment of whoever reads it, or from another resolver, is missing. Raises OSError: there is none that can be
    read; ValueError: it is damaged, or is no mapping."""
    try:
        config = OmegaConf.load(file)
    except OSError:
        raise
    except Exception as error:  # damaged YAML raises errors of PyYAML's, OmegaConf's and Python's own
        raise ValueError(f"{file}: is damaged: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(config, DictConfig):
        raise ValueError(f"{file}: is not a config")
    config = OmegaConf.create(unresolved(OmegaConf.to_container(config)))
    rename(config)
    return config


def unresolved(value: Any, references: bool = True) -> Any:
    """A copy of a container without what asks a resolver, or may be put together to something that does.

    ``references``: whether plain ones to other keys, as ``${run_dir}``, stay.
    """
    if isinstance(value, dict):
        return {key: unresolved(inner, references) for key, inner in value.items()}
    if isinstance(value, list):
        return [unresolved(inner, references) for inner in value]
    asks = isinstance(value, str) and "${" in value and not (references and not re.search(r"[:\\]", value))
    return MISSING if asks else value


def setting(config: DictConfig | None, key: str) -> Any:
    """A value of the config that a run's folder keeps, as JSON has it; None if it is not known."""
    try:
        value = None if config is None else OmegaConf.select(config, key)
        value = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except OmegaConfBaseException:
        return None
    value = unresolved(value, references=False)
    return None if value == MISSING else value
