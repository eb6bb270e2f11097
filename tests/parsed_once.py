"""Lets Hydra parse each config file once in a process, as parsing is half of what composing a config takes.

A file is parsed again when its text is another, and everybody gets a copy.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.plugins.config_source import ConfigResult

#: What was loaded, pickled, because a deep copy takes longer, by the source, the file's name and its text.
_loaded: dict[tuple[str, str, str, bytes | None], bytes] = {}
_load = FileConfigSource.load_config


def _load_once(source: FileConfigSource, config_path: str) -> ConfigResult:
    file = Path(source.path, source._normalize_file_name(config_path))
    key = (source.provider, source.path, config_path, file.read_bytes() if file.is_file() else None)
    if key not in _loaded:
        _loaded[key] = pickle.dumps(_load(source, config_path))
    result: ConfigResult = pickle.loads(_loaded[key])
    return result


def parse_once() -> None:
    """From now on, in this process. Not a source of its own, because Hydra registers the sources anew now and then."""
    FileConfigSource.load_config = _load_once
