"""The page that ``--help`` prints: the settings that a first run needs, the presets, and where the rest stands."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path


def usage(program: str, folders: Sequence[Path]) -> str:
    """The page of a program, whose presets lie in config folders."""
    page = Path(__file__).with_name(f"help_{program}.txt").read_text(encoding="utf-8")
    return page.format(**{group: _options(group, folders) for group in ("experiment", "sweep")})


def _options(group: str, folders: Sequence[Path]) -> str:
    names = sorted({file.stem for folder in folders for file in (folder / group).glob("*.yaml")})
    return textwrap.fill(", ".join(names), 112, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
