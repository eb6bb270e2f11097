"""The keys of branches: games that go on from a state of another game.

A branch is one more try of its game: its key has the same start, and one of the next ``retry``.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

from ..players.records import GameRecord
from ..players.seeds import GameKey


def branch_keys(key: GameKey, turns: int, states: int, continuations: int) -> list[tuple[GameKey, int]]:
    """The keys of a game's branches, each with the place of the turn that it has anew.

    Of so many turns at most ``states`` are taken anew, each ``continuations`` times.
    """
    drawn = sorted(random.Random(key.seed("branches")).sample(range(turns), min(states, turns)))
    places = [place for place in drawn for _ in range(continuations)]
    key = replace(key, group=key.index) if key.group is None else key
    return [(replace(key, retry=key.retry + number), place) for number, place in enumerate(places, start=1)]


def without_branches(records: Iterable[GameRecord]) -> list[GameRecord]:
    """Of games that count, in the order of their keys, those that are no branches."""
    first: dict[GameKey, GameRecord] = {}
    for record in records:
        first.setdefault(record.key.first_try(), record)
    return [*first.values()]
