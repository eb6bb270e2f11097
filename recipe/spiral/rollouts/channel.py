"""How records of games reach the trainer: a channel of their own through TransferQueue, beside the rows.

Every game that was launched puts exactly one entry here, under its key, whether it left rows or not: the record of the
game that counts with those that were discarded on the way, or the error that ended it. What was spent on opponents goes
beside, as the trainer counts it before it takes the games.

A call takes four messages to TransferQueue's processes, whether it brings one entry or a thousand. So all that is ready
at one moment goes in one call, and what comes up while it is under way waits for the next (``send``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import transfer_queue as tq

from ..players.records import GameRecord
from ..players.seeds import GameKey

PARTITION = "games"


class GameFailed(RuntimeError):
    """A game ended in an error; the message is its own."""


class GameLost(RuntimeError):
    """A game was launched and never reported."""


@dataclass(frozen=True)
class Entry:
    """A key of TransferQueue's, with its tag and its fields; None: it has no fields, or keeps those that it has."""

    partition: str
    key: str
    tag: Mapping[str, Any]
    fields: Mapping[str, Any] | None = None


class _Outbox:
    """Entries on their way, of one event loop."""

    def __init__(self) -> None:
        self._waiting: list[Entry] = []
        self._next: asyncio.Task[None] | None = None
        self._under_way: asyncio.Task[None] | None = None

    async def send(self, entries: Iterable[Entry]) -> None:
        self._waiting += [*entries]  # all or, where making one fails, none
        if self._next is None:
            self._next = asyncio.create_task(self._send_next(self._under_way))
        await asyncio.shield(self._next)

    async def _send_next(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(0)  # let all who are ready now send theirs as well
        self._under_way, self._next = self._next, None
        together, self._waiting = self._waiting, []
        await _put(together)


async def _put(entries: Iterable[Entry]) -> None:
    """One call for all entries of a partition that have the same fields."""
    from verl.utils.tensordict_utils import list_of_dict_to_tensordict

    alike: dict[tuple[str, tuple[str, ...] | None], list[Entry]] = defaultdict(list)
    for entry in entries:
        alike[entry.partition, tuple(entry.fields) if entry.fields is not None else None].append(entry)
    for (partition, _), group in alike.items():
        rows = [dict(entry.fields) for entry in group if entry.fields is not None]
        await tq.async_kv_batch_put(
            keys=[entry.key for entry in group],
            partition_id=partition,
            fields=list_of_dict_to_tensordict(rows) if rows else None,
            tags=[dict(entry.tag) for entry in group],
        )


_outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, _Outbox] = WeakKeyDictionary()


async def send(entries: Iterable[Entry]) -> None:
    """Hand over entries, and return when TransferQueue has all of them. What it says against one of them is raised for
    all that go together."""
    await _outboxes.setdefault(asyncio.get_running_loop(), _Outbox()).send(entries)


class Report(msgspec.Struct, omit_defaults=True):
    """What became of a game.

    Attributes:
        games: what was played, those that were discarded among them.
        error: what ended it.
    """

    games: Sequence[GameRecord] = ()
    error: str | None = None


_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder(Report).decode


@dataclass(frozen=True)
class Played:
    """The games of a batch that count and those that were discarded, by key order."""

    records: list[GameRecord] = field(default_factory=list)
    discarded: list[GameRecord] = field(default_factory=list)

    def check_any(self, step: int) -> None:
        """Raises GameFailed: no game counts, because a player or the game failed in each of them."""
        voids = [record for record in self.discarded if record.discarded == "void"]
        if voids and not self.records:
            first = voids[0]
            raise GameFailed(f"in step {step} all games were void, the first against {first.opponent}: {first.reason}")


async def put(key: GameKey, report: Report) -> None:
    """Hand over what became of a game; ``key`` is its own, or any of its retries'."""
    await send([Entry(PARTITION, _name(key), {"status": "reported"}, {"entry": _encode(report)})])


async def put_failure(key: GameKey, game: str, error: Exception) -> None:
    """Hand over the error that ended a game."""
    await put(key, Report(error=f"game {key} of {game} failed: {type(error).__name__}: {error}"))


def take(keys: Iterable[GameKey]) -> Played:
    """Take the reports of these games off the channel.

    Raises:
        GameFailed: one of them ended in an error.
        GameLost: one of them did not report.
    """
    names = [*map(_name, keys)]
    reported = _reported(names)
    reports = _reports(reported)
    if lost := {*names} - {*reported}:
        first = next(name for name in names if name in lost)
        raise GameLost(f"{len(lost)} of {len(names)} games were launched and never reported, the first: {first}")
    if names:
        tq.kv_clear(keys=names, partition_id=PARTITION)
    games = sorted((game for report in reports for game in report.games), key=attrgetter("key.order"))
    return Played(
        [game for game in games if game.discarded is None], [game for game in games if game.discarded is not None]
    )


def forget(keys: Iterable[GameKey]) -> None:
    """Clear what there is of games that are to be played again."""
    if names := _reported(map(_name, keys)):
        tq.kv_clear(keys=names, partition_id=PARTITION)


def raise_failures(keys: Iterable[GameKey]) -> None:
    """Raise the first of these games' errors, a GameFailed, if there is one."""
    _reports(_reported(map(_name, keys)))


def _reported(names: Iterable[str]) -> list[str]:
    """Those of which there is an entry, in their order."""
    there = (tq.kv_list(PARTITION) or {}).get(PARTITION, {})
    return [name for name in names if name in there]


def _reports(names: list[str]) -> list[Report]:
    """The reports of these names; GameFailed: one of them is an error."""
    if not names:
        return []
    data = tq.kv_batch_get(keys=names, partition_id=PARTITION, select_fields=["entry"])
    reports = [_decode(entry) for entry in list(data["entry"])]
    for report in reports:
        if report.error is not None:
            raise GameFailed(report.error)
    return reports


def _name(key: GameKey) -> str:
    """One entry for a game and its retries."""
    return str(key.first_try())
