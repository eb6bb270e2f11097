"""Spares Hydra in this process what it does again and again.

It parses each config file once. For the same choices of groups it looks once which files belong together, and merges
them once; everybody gets a copy. Where any file of a config folder was changed, it does so anew. And it composes a
config once: it would do so once more before, only to see whether ``hydra.mode`` is set.
"""

from __future__ import annotations

import pickle
from collections.abc import Hashable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra._internal import config_loader_impl
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import IConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra._internal.hydra import Hydra
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig

from recipe.spiral.processes.composing import detect_hardware

#: What was loaded, pickled, because a deep copy takes longer, by the source, the file's name and its text.
_loaded: dict[Hashable, bytes] = {}
#: Which files belong together, by all that decides it.
_lists: dict[Hashable, DefaultsList] = {}
#: What was merged, by the ids of the lists in them.
_merged: dict[int, bytes] = {}
# Hydra executes the modules of its config sources once more when it first looks for plugins; only then the class stays.
Plugins.instance()
FileConfigSource = SourcesRegistry.instance().resolve("file")
_load = FileConfigSource.load_config
_list = config_loader_impl.create_defaults_list
_merge = ConfigLoaderImpl._compose_config_from_defaults_list
_get_mode = Hydra.get_mode


def _load_once(source: ConfigSource, config_path: str) -> ConfigResult:
    file = Path(source.path, source._normalize_file_name(config_path))
    key = (source.provider, source.path, config_path, file.read_bytes() if file.is_file() else None)
    if key not in _loaded:
        _loaded[key] = pickle.dumps(_load(source, config_path))
    result: ConfigResult = pickle.loads(_loaded[key])
    return result


def _list_once(
    repo: IConfigRepository, config_name: str | None, overrides_list: list[Override], **how: bool
) -> DefaultsList:
    given = Overrides(repo, overrides_list)
    groups = (given.override_choices, given.append_group_defaults, given.deletions)
    # a machine's kind is the one choice of a group that no command line makes
    key = (tuple(_files(repo)), config_name, repr(groups), detect_hardware(), *sorted(how.items()))
    if key not in _lists:
        _lists[key] = _list(repo, config_name, overrides_list, **how)
    return replace(_lists[key], config_overrides=given.config_overrides)


def _files(repo: IConfigRepository) -> Iterator[Hashable]:
    """Every file that there might be a config in, and when it was changed."""
    for source in repo.get_sources():
        yield source.provider, source.path
        if source.scheme() == "file":
            for file in sorted(Path(source.path).rglob("*.yaml")):
                yield str(file), file.stat().st_mtime_ns, file.stat().st_size


def _merge_once(loader: ConfigLoaderImpl, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
    if id(defaults) not in _merged:
        _merged[id(defaults)] = pickle.dumps(_merge(loader, defaults, repo))
    config: DictConfig = pickle.loads(_merged[id(defaults)])
    return config


def _get_mode_if_set(hydra: Hydra, config_name: str, overrides: list[str]) -> Any:
    """``hydra.mode`` is null unless somebody sets it; no config file of ours does, and none of Hydra's for logging."""
    given = [override.lstrip("+~") for override in overrides]
    asked = any(each.startswith(("hydra.mode", "hydra/")) and "_logging=" not in each for each in given)
    return _get_mode(hydra, config_name, overrides) if asked else None


def compose_once() -> None:
    """From now on."""
    FileConfigSource.load_config = _load_once
    config_loader_impl.create_defaults_list = _list_once
    ConfigLoaderImpl._compose_config_from_defaults_list = _merge_once
    Hydra.get_mode = _get_mode_if_set
