"""Whom the policy plays in validation: the config's ``validation.opponents``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..opponents.fixed_opponents import MODEL, FixedOpponent, find_opponent
from ..opponents.kinds import kinds, make_player
from .schedule import GameShare

SETTING = "validation.opponents"
#: What leaves validation out.
OFF = "trainer.test_freq=-1 trainer.val_before_train=false"


def matches(
    names: Any, opponents: Any, shares: Sequence[GameShare], required: bool = True
) -> list[tuple[str, list[GameShare]]]:
    """Each of validation's opponents, in their order, with the games that it plays.

    Args:
        names: ``validation.opponents``: kinds, or names of entries of ``opponents``.
        opponents: the config's ``opponents``.
        required: whether there must be some, and games for each. Not where there is no validation.

    Raises:
        ValueError: there is none, one is there twice or unknown, its settings are wrong, or it plays none of the games.
        ImportError: one needs a package that is not installed; the message names the extra.
    """
    wanted = [str(name) for name in names]
    if required and not wanted:
        raise ValueError(f"{SETTING}=[]: name at least one, such as random; {OFF} leaves validation out")
    if twice := sorted({name for name in wanted if wanted.count(name) > 1}):
        raise ValueError(f"{SETTING}: {', '.join(twice)} is there twice")
    matched = [(name, _games_of(find_opponent(name, opponents), shares, required)) for name in wanted]
    return [(name, played) for name, played in matched if played]


def _games_of(opponent: FixedOpponent, shares: Sequence[GameShare], required: bool) -> list[GameShare]:
    """The games that an opponent plays: those of its entry, without those that its kind cannot."""
    if opponent.kind == MODEL:
        raise ValueError(f"{SETTING}: {opponent.name!r}: a model plays in training only")
    try:
        make_player(opponent.kind, opponent.settings)
    except ValueError as error:
        raise ValueError(f"{SETTING}: {opponent.name!r}: {error}") from error
    played, reasons = [], [f"its entry has the games {', '.join(opponent.games or ())}"]
    for share in shares:
        if not opponent.plays(share.id):
            continue
        try:
            kinds()[opponent.kind].check_game(share.id)
        except ValueError as error:
            reasons.append(str(error))
        else:
            played.append(share)
    if required and not played:
        games = ", ".join(share.id for share in shares)
        raise ValueError(
            f"{SETTING}: {opponent.name!r} plays none of the games of validation ({games}): {reasons[-1]}; leave it "
            f"out, add a game that it plays to validation.games, or leave validation out: {OFF}"
        )
    return played
