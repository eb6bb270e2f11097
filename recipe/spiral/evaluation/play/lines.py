"""The lines of an evaluation's games file, each a GameRecord: which are games of it, and what is wrong with others."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, get_args

from ...play.records import GameRecord, Verdict
from ...storage.checksums import Unsealed, seal, unseal
from .manifest import Manifest
from .matchups import GameId, MatchUp, game_key


class CorruptGames(ValueError):
    """A line of a games file is no game of its evaluation; the message names the file, the line and what is wrong."""


class Line(NamedTuple):
    """A whole line: its number from 1, its bytes, and the game, or what is wrong with it."""

    number: int
    content: bytes
    record: GameRecord | None
    wrong: str

    def corrupt(self, file: Path) -> CorruptGames:
        """The error for a line without a game."""
        return CorruptGames(
            f"{file}, line {self.number}: {self.wrong}; mend the line, or have it set aside and its game played again "
            "(main_eval: set_aside=true)"
        )


def whole_lines(file: Path, manifest: Manifest) -> Iterator[Line]:
    """The whole lines of a games file that may be missing; what follows the last of them is torn.

    A game may be there once, after any number of its tries that were void.
    """
    if not file.exists():
        return
    tries: dict[tuple[GameId, int], int] = {}
    finished: dict[GameId, int] = {}
    with file.open("rb") as lines:
        for number, content in enumerate(lines, 1):
            if not content.endswith(b"\n"):
                return
            record, wrong = _parse(content, manifest)
            if record is not None:
                identity = GameId.of(record)
                place = (identity, record.key.retry)
                if earlier := finished.get(identity) or tries.get(place):
                    record, wrong = None, f"its game is in line {earlier} already"
                else:
                    tries[place] = number
                    if record.discarded is None:
                        finished[identity] = number
            yield Line(number, content, record, wrong)


def encode(record: GameRecord) -> bytes:
    """A game as a line."""
    try:
        return seal(record.to_json().encode("utf-8"))
    except UnicodeEncodeError:  # half a surrogate pair, as other people's servers may send
        return seal(json.dumps(record.to_dict(), separators=(",", ":")).encode("ascii"))


def _parse(content: bytes, manifest: Manifest) -> tuple[GameRecord | None, str]:
    """A line's game, or what is wrong with the line."""
    try:
        text = unseal(content)
    except Unsealed as error:
        return None, f"it is no game: {error}"
    try:
        record = GameRecord.from_json(text.decode("utf-8"))
        wrong = wrong_with(record, manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return None, f"it is no game ({type(error).__name__}: {error})"
    return (None, wrong) if wrong else (record, "")


def wrong_with(record: GameRecord, manifest: Manifest) -> str:
    """Why a record is no game of an evaluation; "" if it is one."""
    try:
        policy, opponent, game, role, index = GameId.of(record)
    except ValueError as error:
        return str(error)
    for name in (policy, opponent):
        if name not in manifest.policies:
            return f"the evaluation has no {name!r}"
    numbers = (index, record.key.retry)
    if not all(isinstance(number, int) and number >= 0 for number in numbers) or record.key.group is not None:
        return f"its key {record.key} is none of an evaluation"
    key = game_key(manifest.seed, manifest.chance, MatchUp(policy, opponent, game), role, index, record.key.retry)
    if record.key != key:
        return f"the key of this game of {policy} against {opponent} is {key}, not {record.key}"
    if record.discarded == "void":
        return ""
    if record.discarded is not None:
        return f"it was discarded as {record.discarded!r}, which no game of an evaluation is"
    return _inconsistent(record)


def _inconsistent(record: GameRecord) -> str:
    """Why a game cannot have gone as its record says, as far as that shows without playing it again."""
    if any(turn.player not in (0, 1) or turn.verdict not in get_args(Verdict) for turn in record.turns):
        return "a turn of its is none"
    if any(turn.verdict != "legal" for turn in record.turns[:-1]):
        return "it goes on after a turn that was not legal"
    rewards = record.rewards
    if len(rewards) != 2 or not all(isinstance(reward, int | float) and math.isfinite(reward) for reward in rewards):
        return f"its rewards are {rewards}"
    last = record.turns[-1] if record.turns else None
    illegal = last is not None and last.verdict != "legal"
    if illegal != (record.termination == "illegal"):
        return f"its termination is {record.termination!r}, its last turn {last.verdict if last else 'missing'}"
    if last is not None and illegal:
        fits = rewards[last.player] <= -1 and rewards[1 - last.player] <= 1  # what ``Rules`` allow
    elif record.termination == "turn_cap":
        fits = rewards == (0, 0)
    else:
        fits = max(rewards) <= 1 and abs(sum(rewards)) < 1e-9
    return "" if fits else f"its rewards are {rewards}, its termination is {record.termination!r}"
