"""Spares Hydra in this process what it does twice.

It parses each config file once: that is half of what composing a config takes. A file is parsed again when its text is
another, and everybody gets a copy. And it composes a config once: it would do so once more before, only to see whether
``hydra.mode`` is set.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource

#: What was loaded, pickled, because a deep copy takes longer, by the source, the file's name and its text.
_loaded: dict[tuple[str, str, str, bytes | None], bytes] = {}
# Hydra executes the modules of its config sources once more when it first looks for plugins; only then the class stays.
Plugins.instance()
FileConfigSource = SourcesRegistry.instance().resolve("file")
_load = FileConfigSource.load_config
_get_mode = Hydra.get_mode


def _load_once(source: ConfigSource, config_path: str) -> ConfigResult:
    file = Path(source.path, source._normalize_file_name(config_path))
    key = (source.provider, source.path, config_path, file.read_bytes() if file.is_file() else None)
    if key not in _loaded:
        _loaded[key] = pickle.dumps(_load(source, config_path))
    result: ConfigResult = pickle.loads(_loaded[key])
    return result


def _get_mode_if_set(hydra: Hydra, config_name: str, overrides: list[str]) -> Any:
    """``hydra.mode`` is null unless somebody sets it; no config file of ours does."""
    return _get_mode(hydra, config_name, overrides) if any("hydra" in override for override in overrides) else None


def compose_once() -> None:
    """From now on."""
    FileConfigSource.load_config = _load_once
    Hydra.get_mode = _get_mode_if_set
