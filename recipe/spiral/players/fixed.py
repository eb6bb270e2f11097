"""Players that never learn, by kind and settings. (Models are served elsewhere: they need an engine.)"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..games import resolve
from . import alphabeta, perfect, random_player
from .alphabeta import AlphaBetaPlayer
from .api import ApiPlayer, ApiSettings, check_installed
from .base import Player
from .perfect import PerfectPlayer
from .random_player import RandomPlayer


@dataclass(frozen=True)
class _Kind:
    """How to make a player of a kind from its settings, and what else to check of them and of a game."""

    make: Callable[..., Player]
    check_settings: Callable[..., object]
    check_game: Callable[[str], object] = resolve


def _make_api(**settings: Any) -> Player:
    return ApiPlayer(ApiSettings.from_mapping(settings))


def _check_api(**settings: Any) -> None:
    known = ApiSettings.from_mapping(settings)
    check_installed()
    known.key()


_KINDS = {
    "random": _Kind(RandomPlayer, RandomPlayer, random_player.check_game),
    "perfect": _Kind(PerfectPlayer, PerfectPlayer, perfect.check_game),
    "alphabeta": _Kind(AlphaBetaPlayer, AlphaBetaPlayer, alphabeta.check_game),
    "api": _Kind(_make_api, _check_api),
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
        ValueError: an unknown kind, or something is wrong with the settings.
        ImportError: a package is not installed; the message names the extra.
        PlayerMisconfigured: a ValueError, too: the key's environment variable is not set.
    """
    player = _call(kind, _kind(kind).make, settings)
    if name is not None:
        player.name = name
    return player


def check(kind: str, settings: Mapping[str, Any] | None, game_ids: Iterable[str]) -> None:
    """That such a player can be made here, and plays these games. Nothing is asked of a network.

    Raises:
        ValueError: an unknown kind, something is wrong with the settings, a game that it cannot play, or no key.
        ImportError: a package is not installed; the message names the extra.
    """
    entry = _kind(kind)
    _call(kind, entry.check_settings, settings)
    for game_id in game_ids:
        entry.check_game(game_id)


def _kind(kind: str) -> _Kind:
    if kind not in _KINDS:
        raise ValueError(f"{kind!r} is no kind of fixed player; known kinds: {', '.join(KINDS)}")
    return _KINDS[kind]


def _call(kind: str, function: Callable[..., Any], settings: Mapping[str, Any] | None) -> Any:
    """``function(**settings)``; names the settings that it does not know, where it does not do so itself."""
    given = {str(name): value for name, value in (settings or {}).items()}
    parameters = inspect.signature(function).parameters
    known = [name for name, parameter in parameters.items() if parameter.kind is not inspect.Parameter.VAR_KEYWORD]
    if len(known) == len(parameters) and (unknown := sorted(given.keys() - {*known})):
        raise ValueError(
            f"{', '.join(unknown)}: no setting of the kind {kind!r}; it has {', '.join(known) or 'no settings'}"
        )
    return function(**given)
