"""Branches of a game: which of its turns are taken anew, and by which keys. They follow from the game's key alone."""

from __future__ import annotations

import random
from dataclasses import replace

from .seeds import GameKey


def branch_keys(key: GameKey, turns: int, states: int, continuations: int) -> list[tuple[GameKey, int]]:
    """The keys of a game's branches, each with the place of the turn that it has anew.

    Of so many turns at most ``states`` are taken anew, each ``continuations`` times.
    """
    drawn = sorted(random.Random(key.seed("branches")).sample(range(turns), min(states, turns)))
    places = [place for place in drawn for _ in range(continuations)]
    return [(replace(key, branch=number), place) for number, place in enumerate(places, start=1)]
