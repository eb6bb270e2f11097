"""Spares Hydra in this process what it does again and again.

It parses each config file once, and merges the same list of files once; everybody gets a copy. Where a file's text is
another, it is parsed and merged anew. And it composes a config once: it would do so once more before, only to see
whether ``hydra.mode`` is set.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import ResultDefault
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig

#: What was loaded, pickled, because a deep copy takes longer, by the source, the file's name and its text.
_loaded: dict[Hashable, bytes] = {}
#: What was merged, by the files and where in the config each goes.
_merged: dict[Hashable, bytes] = {}
# Hydra executes the modules of its config sources once more when it first looks for plugins; only then the class stays.
Plugins.instance()
FileConfigSource = SourcesRegistry.instance().resolve("file")
_load = FileConfigSource.load_config
_merge = ConfigLoaderImpl._compose_config_from_defaults_list
_get_mode = Hydra.get_mode


def _load_once(source: ConfigSource, config_path: str) -> ConfigResult:
    file = Path(source.path, source._normalize_file_name(config_path))
    key = (source.provider, source.path, config_path, file.read_bytes() if file.is_file() else None)
    if key not in _loaded:
        _loaded[key] = pickle.dumps(_load(source, config_path))
    result: ConfigResult = pickle.loads(_loaded[key])
    result.path = str(key)  # Hydra does not read it; with the text in it, it says whether this is the same file
    return result


def _merge_once(loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
    files = [repo.load_config(str(default.config_path)) for default in defaults]
    places = ((default.config_path, default.package, default.primary) for default in defaults)
    key = tuple((*place, file and file.path) for place, file in zip(places, files, strict=True))
    if key not in _merged:
        _merged[key] = pickle.dumps(_merge(loader, defaults, repo))
    config: DictConfig = pickle.loads(_merged[key])
    return config


def _get_mode_if_set(hydra: Hydra, config_name: str, overrides: list[str]) -> Any:
    """``hydra.mode`` is null unless somebody sets it; no config file of ours does."""
    return _get_mode(hydra, config_name, overrides) if any("hydra" in override for override in overrides) else None


def compose_once() -> None:
    """From now on."""
    FileConfigSource.load_config = _load_once
    ConfigLoaderImpl._compose_config_from_defaults_list = _merge_once
    Hydra.get_mode = _get_mode_if_set
