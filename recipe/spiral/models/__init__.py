"""Models that come with the recipe: a tiny one made on this machine, and a small real one out of a Python package.

To the trainer they are folders like any other; nothing outside this package knows how they came about.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

#: What ``embedded_model`` can be.
EMBEDDED = ("tiny", "tiny_lines", "smollm2_135m")
#: The games that a tiny model is made for where nobody says it.
MADE_FOR = {"tiny": ("TicTacToe", "KuhnPoker"), "tiny_lines": ("TicTacToe",)}


def embedded(name: str, games: Sequence[str], template: str) -> Path:
    """The folder of an embedded model, made now if it is not in the cache.

    Args:
        name: one of ``EMBEDDED``; tiny_lines is the tiny model that was asked about TicTacToe's lines as well.
        games: the games that it will play; a tiny model is made for them.
        template: the prompts' template, likewise.

    Raises:
        ValueError: an unknown name, or games that the tiny model cannot be made for.
        ImportError: a package is missing; the message says how to install it.
        RuntimeError: the model was made, and is not what it should be.
    """
    if name in ("tiny", "tiny_lines"):
        from . import tiny

        return tiny.ensure(games=games, template=template, lines=name == "tiny_lines")
    if name == "smollm2_135m":
        from . import smollm2

        return smollm2.ensure()
    raise ValueError(f"embedded_model={name!r}: unknown; known models: {', '.join(EMBEDDED)}")
