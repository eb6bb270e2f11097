"""Made folders of models and adapters, and a disk without hard links."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.opponents.pool import PoolFolder
from recipe.spiral.storage import disk


class Killed(BaseException):
    """Ends a test where a kill would."""


def cut(file: str, keep: int = -1) -> Callable[[Path], None]:
    """Cuts a file of a folder short."""

    def shorten(place: Path) -> None:
        (place / file).write_bytes((place / file).read_bytes()[:keep])

    return shorten


def tensors(file: Path, value: int, length: int = 4096) -> None:
    """A safetensors file of one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes([value % 256]) * length)


def adapter(folder: Path, value: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    tensors(folder / "adapter_model.safetensors", value)
    return folder


def model(folder: Path, value: int = 1) -> Path:
    """In two files of weights, with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for i, name in enumerate(names):
        tensors(folder / name, value + i)
    index = {"weight_map": {f"w{i}": name for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write(pool: PoolFolder, name: str, value: int = 1) -> None:
    with pool.writing(name) as place:
        adapter(place, value)


def value_of(folder: Path) -> int:
    return (folder / "adapter_model.safetensors").read_bytes()[-1]


def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*args: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(disk.os, "link", link)
