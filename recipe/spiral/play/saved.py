"""The folder of the games that people have played: records as training writes them, which the report replays."""

from __future__ import annotations

import fcntl
from pathlib import Path

from ..players.records import GameRecord
from ..storage.record_folder import RecordFolder
from .playing import SPLIT


def save(folder: Path, record: GameRecord) -> Path:
    """Add a game; returns its file.

    Raises:
        OSError: it cannot be written.
    """
    games = RecordFolder(folder / "games")
    games.path.mkdir(parents=True, exist_ok=True)
    with (games.path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two people may end their games at the same moment
        return games.write(SPLIT, max(games.steps(SPLIT), default=0) + 1, [record])
