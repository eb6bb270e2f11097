"""Whom the policy plays in validation: the config's ``validation.opponents``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..opponents.fixed_opponents import MODEL, FixedOpponent, find_opponent
from ..play.players import fixed
from .schedule import GameShare

SETTING = "validation.opponents"


def matches(names: Any, opponents: Any, shares: Sequence[GameShare]) -> list[tuple[str, list[GameShare]]]:
    """Each of validation's opponents, in their order, with the games that it plays; at least one.

    Args:
        names: ``validation.opponents``: kinds, or names of entries of ``opponents``.
        opponents: the config's ``opponents``.
        shares: the games.

    Raises:
        ValueError: there is none, one is there twice or unknown, its settings are wrong, or it plays none of the games.
        ImportError: one needs a package that is not installed; the message names the extra.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise ValueError(f"{SETTING}={names!r}: must be a list: {SETTING}=[{names}]")
    wanted = [str(name) for name in names]
    if not wanted:
        raise ValueError(f"{SETTING}=[]: name at least one, such as random; trainer.test_freq=-1 leaves validation out")
    if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
        raise ValueError(f"{SETTING}: {', '.join(twice)} is there twice")
    return [(name, _games_of(find_opponent(name, opponents), shares)) for name in wanted]


def _games_of(opponent: FixedOpponent, shares: Sequence[GameShare]) -> list[GameShare]:
    """The games that an opponent plays: those of its entry, without those that its kind cannot."""
    if opponent.kind == MODEL:
        raise ValueError(f"{SETTING}: {opponent.name!r}: a model plays in training only")
    try:
        fixed.check(opponent.kind, opponent.settings, ())
    except ValueError as error:
        raise ValueError(f"{SETTING}: {opponent.name!r}: {error}") from error
    played, reasons = [], [f"its entry has the games {', '.join(opponent.games or ())}"]
    for share in shares:
        if not opponent.plays(share.id):
            continue
        try:
            fixed.check(opponent.kind, opponent.settings, (share.id,))
        except ValueError as error:
            reasons.append(str(error))
        else:
            played.append(share)
    if not played:
        games = ", ".join(share.id for share in shares)
        raise ValueError(
            f"{SETTING}: {opponent.name!r} plays none of the games of validation ({games}): {reasons[-1]}; leave it "
            "out, or add a game that it plays to validation.games"
        )
    return played
