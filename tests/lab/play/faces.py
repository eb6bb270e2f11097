"""A face for tests: it enters what it is given, and keeps everything that it was shown."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from recipe.spiral.lab.play.playing import Finished, Left, Move, Table, play_game
from recipe.spiral.match import Rules
from recipe.spiral.players.player import Player, Position
from recipe.spiral.players.seeds import GameKey

USUAL = Rules()
KEY = GameKey("human", 5, 0, 0)


class Shown:
    """Enters texts, or what a function of the position says."""

    def __init__(self, entries: Iterable[str] | Callable[[Position], str]) -> None:
        self._next = entries if callable(entries) else None
        self._entries = iter(() if callable(entries) else entries)
        self.observations: list[str] = []
        self.complaints: list[str] = []
        self.moves: list[Move] = []

    async def ask(self, position: Position, complaint: str) -> str:
        self.observations.append(position.observation)
        if complaint:
            self.complaints.append(complaint)
        if self._next is not None:
            return self._next(position)
        try:
            return next(self._entries)
        except StopIteration:
            raise Left("no more entries") from None

    def waits(self) -> None:
        pass

    def moved(self, move: Move, table: object) -> None:
        self.moves.append(move)


def played(
    face: Shown, opponent: Player, game: str = "TicTacToe", role: int = 0, rules: Rules = USUAL, key: GameKey = KEY
) -> Finished:
    return asyncio.run(play_game(Table(game, opponent.name, role, rules), opponent, face, key))
