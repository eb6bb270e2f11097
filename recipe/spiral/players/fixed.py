"""Players that never learn, by kind and settings. (Models are served elsewhere: they need an engine.)"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ..games import resolve
from . import alphabeta, perfect, random_player
from .alphabeta import AlphaBetaPlayer
from .api.endpoint_settings import ApiSettings
from .api.player import ApiPlayer
from .base import Player
from .perfect import PerfectPlayer
from .random_player import RandomPlayer


def _api_player(**settings: Any) -> Player:
    return ApiPlayer(ApiSettings.from_mapping(settings))


#: How to make a player of a kind from its settings, and how to check that it plays a game.
_KINDS: dict[str, tuple[Callable[..., Player], Callable[[str], object]]] = {
    "random": (RandomPlayer, random_player.check_game),
    "perfect": (PerfectPlayer, perfect.check_game),
    "alphabeta": (AlphaBetaPlayer, alphabeta.check_game),
    "api": (_api_player, resolve),
}
#: The kinds that there are.
KINDS = tuple(_KINDS)


def make_player(kind: str, settings: Mapping[str, Any] | None = None, name: str | None = None) -> Player:
    """A player, which serves any number of games at a time. An "api" player should serve all games of its process,
    because its places and its limit are its own.

    Args:
        kind: one of ``KINDS``.
        settings: "random": none; "perfect": alpha; "alphabeta": depth; "api": see ``ApiSettings``.
        name: for records and metrics, in place of the player's own.

    Raises:
        ValueError: an unknown kind, something is wrong with the settings, or the key's variable is not set.
        ImportError: a package is not installed; the message names it.
    """
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is no kind of fixed player; known kinds: {', '.join(KINDS)}")
    make, _ = _KINDS[kind]
    given = {str(key): value for key, value in (settings or {}).items()}
    known = list(inspect.signature(make).parameters)
    if make is not _api_player and (unknown := sorted(given.keys() - {*known})):
        raise ValueError(
            f"{', '.join(unknown)}: no setting of the kind {kind!r}; it has {', '.join(known) or 'no settings'}"
        )
    player: Any = make(**given)
    if name is not None:
        player.name = name
    return player


def check(kind: str, settings: Mapping[str, Any] | None, game_ids: Iterable[str]) -> None:
    """That such a player can be made here, and plays these games. Nothing is asked of a network.

    Raises:
        ValueError, ImportError: as ``make_player``; or a game that it cannot play.
    """
    make_player(kind, settings)
    for game_id in game_ids:
        _KINDS[kind][1](game_id)
