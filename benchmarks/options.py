"""What the options of benchmarks and experiments have in common, besides what all commands have."""

from __future__ import annotations

import argparse
from pathlib import Path

from recipe.spiral.processes.arguments import Arguments
from recipe.spiral.storage.checkpoints import CONFIG
from recipe.spiral.storage.disk import unwritable


def parse_with_overrides(parser: Arguments) -> tuple[argparse.Namespace, list[str]]:
    """The options, and what stands beside them: a run's overrides. Another flag is refused."""
    options, overrides = parser.parse_known_args()
    for flag in (word for word in overrides if word.startswith("-")):
        parser.error(f"unrecognized arguments: {flag}")
    return options, overrides


def new_folder(text: str) -> Path:
    """The type of an option that names a folder to make, or to add to."""
    if why := unwritable(Path(text)):
        raise argparse.ArgumentTypeError(f"{text}: {why}; name another folder")
    return Path(text)


def run_folder(text: str) -> Path:
    """The type of an argument that names a run's folder."""
    if not (folder := Path(text)).joinpath(CONFIG).is_file():
        raise argparse.ArgumentTypeError(f"{text}: no run is here: there is no {CONFIG}")
    return folder
