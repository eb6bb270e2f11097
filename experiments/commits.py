"""Which code has made what: the commits of this project that have worked in a folder, kept beside what they made."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path

from recipe.spiral.storage.disk import write_whole

ROOT = Path(__file__).resolve().parents[1]
#: In a run's folder: the commits whose code has trained it, in their order.
COMMITS = "commits.json"


def note(folder: Path, now: str, anew: bool = False) -> None:
    """Add a commit to those that have worked in a folder; ``anew``: what others made there is gone."""
    known = [] if anew else _known(folder)
    if now not in known:
        write_whole(folder / COMMITS, json.dumps([*known, now]) + "\n")


def noted(folders: Iterable[Path]) -> list[str]:
    """The commits that have worked in these folders, each once; "unknown" for a folder that does not say."""
    return list(dict.fromkeys(found for folder in folders for found in _known(folder) or ["unknown"]))


def commit(root: Path = ROOT) -> str:
    """The commit that ``root`` is at; "unknown" where git does not say.

    With "-modified" if what decides about results, ``recipe`` and ``config``, differs from it.
    """
    try:
        head = _git(root, "rev-parse", "--short=12", "HEAD")
        return f"{head}-modified" if _git(root, "status", "--porcelain", "--", "recipe", "config") else head
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def _known(folder: Path) -> list[str]:
    try:
        found: list[str] = json.loads((folder / COMMITS).read_text(encoding="utf-8"))
    except OSError:
        return []
    return found


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=20)
    return done.stdout.strip()
