"""What a rollout worker hands to the trainer: all that is ready at one moment goes into TransferQueue in one call.

A call takes four messages to TransferQueue's processes, whether it brings one entry or a thousand. While one is under
way, what comes up meanwhile waits for the next.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import transfer_queue as tq

from ..rollouts import channel
from ..rollouts.channel import Entry
from .packed_storage import columns


class Outbox:
    """Entries on their way, of one event loop."""

    def __init__(self) -> None:
        self._waiting: list[Entry] = []
        self._next: asyncio.Task[None] | None = None
        self._under_way: asyncio.Task[None] | None = None

    async def put(self, entries: Iterable[Entry]) -> None:
        """Hand over entries, and return when TransferQueue has all of them. What it says against one of them is raised
        for all that go together."""
        self._waiting.extend(entries)
        if self._next is None:
            self._next = asyncio.create_task(self._send_next(self._under_way))
        await asyncio.shield(self._next)

    async def _send_next(self, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(0)  # let all who are ready now put theirs as well
        self._under_way, self._next = self._next, None
        together, self._waiting = self._waiting, []
        await _send(together)


async def _send(entries: Iterable[Entry]) -> None:
    """One call for all entries of a partition that have the same fields."""
    alike: dict[tuple[str, tuple[str, ...] | None], list[Entry]] = defaultdict(list)
    for entry in entries:
        alike[entry.partition, tuple(entry.fields) if entry.fields is not None else None].append(entry)
    for (partition, names), group in alike.items():
        fields = [entry.fields for entry in group if entry.fields is not None]
        await tq.async_kv_batch_put(
            keys=[entry.key for entry in group],
            partition_id=partition,
            fields=None if names is None else columns(fields),
            tags=[dict(entry.tag) for entry in group],
        )


_outboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Outbox] = WeakKeyDictionary()


async def put(entries: Iterable[Entry]) -> None:
    """Hand over entries by this event loop's outbox, and return when TransferQueue has all of them."""
    await _outboxes.setdefault(asyncio.get_running_loop(), Outbox()).put(entries)


def take_over() -> None:
    """Let the records of games go this way, too, in this process."""
    channel.send = put
