"""Whom the policy plays in validation: the config's ``validation.opponents``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..opponents.fixed_opponents import MODEL, find_opponent
from ..opponents.kinds import kinds, make_player
from .schedule import GameShare


def matches(
    names: Any, opponents: Any, shares: Sequence[GameShare], required: bool = True
) -> list[tuple[str, list[GameShare]]]:
    """Each of validation's opponents, in their order, with the games that it plays.

    Args:
        names: ``validation.opponents``: kinds, or names of entries of ``opponents``.
        opponents: the config's ``opponents``.
        required: whether there must be games for each. Not where there is no validation.

    Raises:
        ValueError: one is there twice or unknown, its settings are wrong, or it plays none of the games.
        ImportError: one needs a package that is not installed; the message names the extra.
    """
    matched: dict[str, list[GameShare]] = {}
    for name in map(str, names):
        opponent, setting = find_opponent(name, opponents), f"validation.opponents: {name!r}"
        if name in matched or opponent.kind == MODEL:
            raise ValueError(f"{setting}: a model plays in training only, and another opponent is named once")
        try:
            make_player(opponent.kind, opponent.settings)
        except ValueError as error:
            raise ValueError(f"{setting}: {error}") from error
        matched[name] = [share for share in shares if opponent.plays(share.id) and _can(opponent.kind, share.id)]
        if required and not matched[name]:
            games = ", ".join(share.id for share in shares)
            raise ValueError(f"{setting}: plays none of the games of validation ({games}); leave it out")
    if required and not matched:
        raise ValueError("validation.opponents=[]: name one; trainer.test_freq=-1 leaves validation out")
    return [(name, played) for name, played in matched.items() if played]


def _can(kind: str, game: str) -> bool:
    try:
        kinds()[kind].check_game(game)
    except ValueError:
        return False
    return True
