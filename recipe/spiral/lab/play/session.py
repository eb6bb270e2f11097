"""A sitting: one opponent, and one game after the other. Its model loads while the person already thinks."""

from __future__ import annotations

import asyncio
import fcntl
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ...players.player import Player, Position, Response
from ...players.records import GameRecord
from ...players.seeds import GameKey
from ...processes.terminal import visible
from ..own_command import command
from ..record_folder import RecordFolder
from .playing import SPLIT, Face, Finished, Responding, Table, play_game
from .seats_taken import Opponent
from .threads import begin


@dataclass
class Session:
    """The seed decides all games: cards, dice, the opponent's draws. Games are saved in the folder.
    ``responses``: whether the person is shown what the opponent writes."""

    game: str
    opponent: Opponent
    seed: int
    folder: Path
    responses: bool = True
    _played: int = 0
    _loading: Future[Player] = field(default_factory=Future)

    def load(self) -> None:
        """Begin to load the opponent."""
        self._loading = begin(self.opponent.make)

    async def loaded(self) -> Player:
        """The opponent, when it is loaded. Raises ValueError, ImportError, EngineFailure: it cannot be."""
        return await asyncio.wrap_future(self._loading)

    def table(self, role: int) -> Table:
        return Table(self.game, self.opponent.name, role, self.opponent.rules)

    async def play(self, face: Face, role: int) -> Finished:
        """Play the next game. (See ``play_game`` for what it raises, besides what ``loaded`` does.)"""
        key = GameKey(SPLIT, self.seed, 0, self._played)
        self._played += 1
        return await play_game(self.table(role), Responding(self.opponent.name, self._respond), face, key)

    async def _respond(self, position: Position) -> Response:
        """The opponent is waited for when it is to move."""
        return await (await self.loaded()).respond(position)

    def save(self, finished: Finished) -> str:
        """Save a game; returns what is to be said about that, as it can be shown."""
        try:
            file = save(self.folder, finished.record)
        except (OSError, ValueError) as error:
            return visible(f"The game could not be saved: {error}")
        return visible(f"Saved: {file}\nReplay: {command('report', self.folder)}")


def save(folder: Path, record: GameRecord) -> Path:
    """Add a game to a folder of records, which the report replays; returns its file."""
    games = RecordFolder(folder / "games")
    games.path.mkdir(parents=True, exist_ok=True)
    with (games.path / ".lock").open("w") as lock:
        with suppress(OSError):  # a disk without locks
            fcntl.flock(lock, fcntl.LOCK_EX)  # two people may end their games at the same moment
        return games.write(SPLIT, max(games.steps(SPLIT), default=0) + 1, [record])
