"""Play a recorded game again, from its key and its responses: what comes out must be what was recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ..games import make
from ..match import Rules, play
from ..play.players import Position, Response
from ..play.records import GameRecord, Turn


class _Reader:
    """Sits in both seats and answers with the recorded responses, in the order in which they were given.

    Where a game goes on after its record's end it answers with nothing, which ends the game.
    """

    name = "record"

    def __init__(self, turns: Iterable[Turn]) -> None:
        self._turns = iter(turns)

    async def respond(self, position: Position) -> Response:
        turn = next(self._turns, None)
        return Response("") if turn is None else Response(turn.response, turn.tokens, turn.truncated, turn.usage)


def replay(record: GameRecord, rules: Rules) -> GameRecord:
    """The record that the match makes of the same responses; its players' names are not those of the record.

    Raises:
        UnknownGame: no such game.
        ImportError: the game needs a package that is not installed.
    """
    game = make(record.game, record.key.game_seed())
    reader = _Reader(record.turns)
    return asyncio.run(play(record.key, record.game, game, (reader, reader), record.trainable, rules))


def differences(record: GameRecord, replayed: GameRecord) -> list[str]:
    """What of a record's course is not what the replay shows: the first turn that differs, the length, the ending."""
    found = []
    for turn, again in zip(record.turns, replayed.turns, strict=False):
        if unlike := [
            f"{name} {_short(getattr(turn, name))} is {_short(getattr(again, name))} in the replay"
            for name in ("player", "turn", "observation", "verdict", "action")
            if getattr(turn, name) != getattr(again, name)
        ]:
            found.append(f"turn {turn.turn} of player {turn.player}: {', '.join(unlike)}")
            break  # what follows has gone another way
    if len(record.turns) != len(replayed.turns):
        longer = "goes on after" if len(replayed.turns) > len(record.turns) else "is over before"
        found.append(f"the replay {longer} the last of {len(record.turns)} recorded turns")
    elif record.termination != replayed.termination:
        found.append(f"termination {_short(record.termination)} is {_short(replayed.termination)} in the replay")
    return found


def _short(value: object, length: int = 60) -> str:
    text = repr(value)
    return text if len(text) <= length else f"{text[: length - 4]} ..."
