"""Which turns of a step should be chosen or rejected (``loss=dpo``), computed a second time from the records.

What ``training/pairs.py`` computes is written here again on purpose, as in ``recompute``.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fractions import Fraction

from ..players.records import GameRecord, Turn

#: A turn by its game's key, player and number.
Place = tuple[object, int, int]


def fingerprint(ids: Sequence[int]) -> str:
    """Short for a prompt's or a response's tokens, which take much memory."""
    return hashlib.blake2b(",".join(map(str, ids)).encode(), digest_size=16).hexdigest()


def marks(games: Iterable[GameRecord]) -> dict[Place, float]:
    """1 for chosen turns, -1 for rejected ones; a turn in no pair is not there.

    Args:
        games: of a step, those that count; of their turns, ``observation`` and ``response`` are fingerprints.
    """
    prompts: dict[object, list[tuple[GameRecord, Turn]]] = defaultdict(list)
    for record in sorted(games, key=lambda record: record.key):
        for player in record.trainable:
            for turn in record.turns_of(player):
                if turn.left_out in (None, "unpaired"):
                    prompts[record.key.start(), record.players, player, turn.observation].append((record, turn))
    chosen: dict[Place, float] = {}
    for turns in prompts.values():
        first: dict[str, Place] = {}
        outcomes: dict[str, list[Fraction]] = defaultdict(list)
        for record, turn in turns:
            first.setdefault(turn.response, (record.key, turn.player, turn.turn))
            outcomes[turn.response].append(Fraction(record.rewards[turn.player]))
        means = {response: sum(values) / len(values) for response, values in outcomes.items()}
        best, worst = max(means.values()), min(means.values())
        if best > worst:
            chosen[next(first[response] for response in first if means[response] == best)] = 1.0
            chosen[next(first[response] for response in first if means[response] == worst)] = -1.0
    return chosen
