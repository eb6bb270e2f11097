"""What a report may read: regular files of the run's own folder. A report is sent to others, and a link may lead to
anything that its maker can read."""

from __future__ import annotations

from pathlib import Path


def is_inside(folder: Path, file: Path) -> bool:
    """Whether the file is a regular one that lies in the folder, wherever links lead."""
    return file.is_file() and file.resolve().is_relative_to(folder.resolve())
