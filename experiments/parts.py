"""The parts of an experiment that are done: each is a file, written whole, that the next start finds again."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np


class Parts:
    """Arrays and notes by what decides them.

    Args:
        folder: where they are kept; made when the first one is.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, name: str, decided_by: Mapping[str, Any]) -> Path:
        """A part's file: another setting is another file."""
        digest = hashlib.sha256(json.dumps(decided_by, sort_keys=True).encode()).hexdigest()[:12]
        return self._folder / f"{name}-{digest}.npz"

    def load(self, file: Path) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]] | None:
        """Arrays and notes; None where the part is not done, or its file is broken."""
        try:
            with np.load(file, allow_pickle=False) as data:
                arrays = {name: data[name] for name in data.files}
            return arrays, json.loads(str(arrays.pop("notes")))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None

    def save(self, file: Path, arrays: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
        """Write a part."""
        self._folder.mkdir(parents=True, exist_ok=True)
        whole = io.BytesIO()
        np.savez(whole, notes=np.array(json.dumps(notes)), **arrays)
        unfinished = file.with_name(f".{file.name}.{os.getpid()}")
        unfinished.write_bytes(whole.getvalue())
        unfinished.replace(file)
