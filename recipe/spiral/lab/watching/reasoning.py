"""What a policy says besides its answer, and whether it still says something."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean

from ...players.prompts import place_of_box
from ...players.records import GameRecord

_TAGS = re.compile(r"</?think>")


def reasoning(response: str) -> str:
    """A response without its last box and without think tags, stripped."""
    place = place_of_box(response)
    if place:
        response = response[: place[0]] + response[place[2] + 1 :]
    return _TAGS.sub("", response).strip()


def reasoning_metrics(records: Iterable[GameRecord], shortest: int) -> dict[str, float]:
    """Shares of turns with fewer than ``shortest`` characters of reasoning.

    ``games/{game}/p{role}/short_reasoning`` for roles that had a turn, ``turns/short_reasoning`` over all of them.
    """
    short: dict[tuple[str, int], list[bool]] = defaultdict(list)
    for record in records:
        for turn in record.trainable_turns():
            if turn.tokens is not None:
                response = turn.response
                short[record.game, turn.player].append(len(response) < shortest or len(reasoning(response)) < shortest)
    shares = {f"games/{game}/p{role}/short_reasoning": fmean(turns) for (game, role), turns in sorted(short.items())}
    return {**shares, "turns/short_reasoning": fmean([turn for turns in short.values() for turn in turns] or [0.0])}
