"""Hydra's source of config files, which parses a file once in a process: half of what composing a config takes.

A file is parsed again when its text is another, and everybody gets a copy.
"""

from __future__ import annotations

import pickle
from pathlib import Path

from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra._internal.sources_registry import SourcesRegistry
from hydra.core.plugins import Plugins
from hydra.plugins.config_source import ConfigResult

#: What was loaded, pickled, because a deep copy takes longer, by the source, the file's name and its text.
_loaded: dict[tuple[str, str, str, bytes | None], bytes] = {}


class ParsedOnce(FileConfigSource):
    def load_config(self, config_path: str) -> ConfigResult:
        file = Path(self.path, self._normalize_file_name(config_path))
        key = (self.provider, self.path, config_path, file.read_bytes() if file.is_file() else None)
        if key not in _loaded:
            _loaded[key] = pickle.dumps(super().load_config(config_path))
        result: ConfigResult = pickle.loads(_loaded[key])
        return result


def parse_once() -> None:
    """From now on, in this process."""
    Plugins.instance()  # registers Hydra's own
    SourcesRegistry.instance().types[ParsedOnce.scheme()] = ParsedOnce
