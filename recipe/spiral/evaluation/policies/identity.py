"""What identifies a policy in an evaluation's manifest, so that continuing with other weights is noticed.

For each file of weights it is the file's size, and a hash of its first and last MiB and of 64 pieces of 4 KiB spread
evenly between. Training changes every weight, and to hash files of some GiB whole would take minutes. Configs and the
tokenizer are hashed whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_END = 2**20
_PIECE, _PIECES = 4096, 64
#: Further files that decide what a policy answers.
_TEXTS = ("config.json", "adapter_config.json", "generation_config.json", "tokenizer.json", "chat_template.jinja")


def weights_identity(model: Path, adapter: Path | None) -> dict[str, Any]:
    """The identity of a model, and of the adapter on it."""
    identity: dict[str, Any] = {"kind": "model" if adapter is None else "adapter"}
    for part, folder in (("model", model), ("adapter", adapter)):
        if folder is not None:
            identity[part] = {file.name: _digest(file) for file in _files(folder)}
    return identity


def fixed_identity(kind: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The identity of a player without weights: its settings, which hold no secrets."""
    return {"kind": kind, **({"settings": dict(settings)} if settings else {})}


def _files(folder: Path) -> list[Path]:
    weights = sorted(folder.glob("*.safetensors"))
    return [*weights, *(folder / name for name in _TEXTS if (folder / name).is_file())]


def _digest(file: Path) -> str:
    """A file's size and hash; a small file is hashed whole."""
    size = file.stat().st_size
    digest = hashlib.blake2b(digest_size=16)
    with file.open("rb") as content:
        if size <= 2 * _END + _PIECES * _PIECE:
            digest.update(content.read())
        else:
            digest.update(content.read(_END))
            for place in range(_PIECES):
                content.seek(_END + (size - 2 * _END - _PIECE) * place // _PIECES)
                digest.update(content.read(_PIECE))
            content.seek(size - _END)
            digest.update(content.read())
    return f"{size} {digest.hexdigest()}"
