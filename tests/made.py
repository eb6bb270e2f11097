"""Records, players and games made for tests; and how the time that something takes grows with its text."""

from __future__ import annotations

import asyncio
import gc
import gzip
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from recipe.spiral.games import Game, IllegalAction
from recipe.spiral.match import Rules, play
from recipe.spiral.players.player import Player, Position, Response
from recipe.spiral.players.records import GameRecord, Termination, Tokens, Turn, Verdict
from recipe.spiral.players.seeds import GameKey

KEY = GameKey("train", 7, 1, 0)


def unpacked(file: Path) -> bytes:
    """What is in a file of records."""
    return gzip.decompress(file.read_bytes())


def repack(file: Path, content: bytes | str) -> None:
    """Put something else into a file of records, as gzip does it."""
    file.write_bytes(gzip.compress(content.encode() if isinstance(content, str) else content))


def boxed(action: str) -> str:
    return f"\\boxed{{{action}}}"


def tokens(length: int = 2) -> Tokens:
    return Tokens([1, 2, 3], list(range(10, 10 + length)), [-0.5] * length, (0, 0))


def turn(player: int, number: int, verdict: Verdict = "legal", length: int = 2, **more: object) -> Turn:
    """A policy's turn."""
    fields = {"observation": "board", "response": boxed("[0]"), "action": "[0]", "tokens": tokens(length), **more}
    return Turn(player=player, turn=number, verdict=verdict, **fields)  # type: ignore[arg-type]


def record(
    index: int = 0,
    game: str = "TicTacToe",
    rewards: tuple[float, float] = (0.0, 0.0),
    turns: Sequence[Turn] = (),
    trainable: tuple[int, ...] = (0, 1),
    termination: Termination = "rules",
    **more: object,
) -> GameRecord:
    """A game of the first step."""
    key = GameKey("train", 7, 1, index)
    players = tuple("policy" if role in trainable else "random" for role in (0, 1))
    return GameRecord(key, game, players, trainable, list(turns), termination, rewards, **more)  # type: ignore[arg-type]


class Scripted:
    """Answers with the given responses in turn; keeps the positions that it was shown."""

    def __init__(self, *responses: str | Response, name: str = "scripted") -> None:
        self.name = name
        self.responses = list(responses)
        self.seen: list[Position] = []

    async def respond(self, position: Position) -> Response:
        self.seen.append(position)
        response = self.responses[position.turn]
        return response if isinstance(response, Response) else Response(response)


class Endless(Game):
    """A game that its rules never decide."""

    max_turns = 6
    actions = ("[pass]", "[never]")

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.turns = 0

    @property
    def current_player(self) -> int:
        return self.turns % 2

    @property
    def is_terminal(self) -> bool:
        return False

    def observation(self, player: int) -> str:
        return f"turn {self.turns} of player {player}"

    def legal_actions(self) -> tuple[str, ...]:
        return ("[pass]",)

    def step(self, action: str) -> None:
        if action != "[pass]":
            raise IllegalAction("only passing is possible")
        self.turns += 1

    def rewards(self) -> tuple[float, float]:
        raise AssertionError("the game is not over")


def run_match(
    game: Game,
    players: Sequence[Player],
    rules: Rules | None = None,
    key: GameKey = KEY,
    trainable: tuple[int, ...] = (0, 1),
) -> GameRecord:
    return asyncio.run(play(key, type(game).__name__, game, players, trainable, rules or Rules()))


def counted(metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
    """The metrics under a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in metrics.items() if name.startswith(prefix)}


def in_linear_time(read: Callable[[str], object], text: str) -> bool:
    """Whether reading a text takes about eight times as long as reading an eighth of it, or no time to speak of.

    Where the time grew with the square of the length, it would be sixty-four times.
    """
    short = text[: len(text) // 8]
    # other programs and the collector of garbage only add to a time: one that is short enough is enough
    return any((long := _seconds(read, text)) < 0.05 or long < 24 * _seconds(read, short) for _ in range(3))


def _seconds(read: Callable[[str], object], text: str) -> float:
    """Seconds of this process."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        begin = time.process_time()
        read(text)
        return time.process_time() - begin
    finally:
        if collecting:
            gc.enable()
