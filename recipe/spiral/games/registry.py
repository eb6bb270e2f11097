"""All games by id. A new game of this repository is one file and one line in ``_GAMES``.

A game's module is imported when the game is made. The ids ``textarena:<id>`` are TextArena's two-player environments,
and ``my_package.my_game:Pennies`` is a class from outside (``outside``).
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Container, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from .base import TEXTARENA, Game, UnknownGame
from .outside import game_class, installed, is_class, is_outside


class NotNamed(ImportError):
    """A file names a game from outside, and the user does not: it is not imported."""

    def __init__(self, game_id: str) -> None:
        super().__init__(f"a folder's own code is not imported; if you trust it, allow the game by --game {game_id}")


class _Entry(NamedTuple):
    """A game's module and class, its arguments, and its names in TextArena (-v0) and in SPIRAL (-v1, -v2)."""

    module: str
    name: str
    arguments: Mapping[str, Any] = MappingProxyType({})
    aliases: tuple[str, ...] = ()


_GAMES = {
    "TicTacToe": _Entry("tictactoe", "TicTacToe", {}, ("TicTacToe-v0",)),
    "KuhnPoker": _Entry("kuhn_poker", "KuhnPoker", {"rounds": 1}),
    "KuhnPoker-3": _Entry("kuhn_poker", "KuhnPoker", {"rounds": 3}, ("KuhnPoker-v0",)),
    "KuhnPoker-5": _Entry("kuhn_poker", "KuhnPoker", {"rounds": 5}, ("KuhnPoker-v1", "KuhnPoker-v0-short")),
    "ConnectFour": _Entry("connect_four", "ConnectFour", {}, ("ConnectFour-v0",)),
    "PigDice": _Entry("pig_dice", "PigDice", {"target": 50, "rounds": 25}, ("PigDice-v1", "PigDice-v0-50")),
    "PigDice-100": _Entry("pig_dice", "PigDice", {"target": 100, "rounds": 50}, ("PigDice-v0", "PigDice-v0-100")),
    "LiarsDice": _Entry("liars_dice", "LiarsDice", {"dice": 5}, ("LiarsDice-v1", "LiarsDice-v0")),
    "LiarsDice-3": _Entry("liars_dice", "LiarsDice", {"dice": 3}, ("LiarsDice-v0-small",)),
    "LiarsDice-1": _Entry("liars_dice", "LiarsDice", {"dice": 1}),
    "Nim": _Entry("nim", "Nim", {"piles": (3, 4, 5)}, ("Nim-v0",)),
    "Snake": _Entry("snake", "Snake", {"size": 5, "apples": 2, "steps": 20}, ("Snake-v0",)),
    "Snake-10": _Entry("snake", "Snake", {"size": 10, "apples": 3, "steps": 50}, ("Snake-v0-standard",)),
    "Breakthrough": _Entry("breakthrough", "Breakthrough", {"size": 8}, ("Breakthrough-v0",)),
    "Breakthrough-5": _Entry("breakthrough", "Breakthrough", {"size": 5}, ("Breakthrough-v0-tiny",)),
    "SimpleNegotiation": _Entry("simple_negotiation", "SimpleNegotiation", {"goods": 2}, ("SimpleNegotiation-v1",)),
    "SimpleNegotiation-5": _Entry(
        "simple_negotiation", "SimpleNegotiation", {"goods": 5}, ("SimpleNegotiation-v2", "SimpleNegotiation-v0")
    ),
    "SimpleBlindAuction": _Entry(
        "simple_blind_auction", "SimpleBlindAuction", {}, ("SimpleBlindAuction-v1", "SimpleBlindAuction-v0")
    ),
    "TruthAndDeception": _Entry(
        "truth_and_deception", "TruthAndDeception", {}, ("TruthAndDeception-v1", "TruthAndDeception-v0")
    ),
    "DontSayIt": _Entry("dont_say_it", "DontSayIt", {}, ("DontSayIt-v0",)),
    "WordChains": _Entry("word_chains", "WordChains", {}, ("WordChains-v1", "WordChains-v0")),
    "SpellingBee": _Entry("spelling_bee", "SpellingBee", {}, ("SpellingBee-v1", "SpellingBee-v0")),
}
_ALIASES = {alias: game_id for game_id, entry in _GAMES.items() for alias in entry.aliases}


def known_games() -> tuple[str, ...]:
    """The ids of this repository's games, without aliases."""
    return tuple(sorted(_GAMES))


def id_of(game_id: str) -> str:
    """Our id of a game, for an id or an alias. Nothing is imported, so whether it can be played is not known.

    TextArena's suffixes for other wrappers ("-train", "-raw") are ignored.

    Raises:
        UnknownGame: there is no such game; the message says what to do.
    """
    name = game_id.removesuffix("-train").removesuffix("-raw")
    if name in _GAMES:
        return name
    if name in _ALIASES:
        return _ALIASES[name]
    if game_id.startswith(TEXTARENA) or is_outside(game_id):
        return game_id
    near = difflib.get_close_matches(game_id, [*_GAMES, *_ALIASES, *installed()], n=1, cutoff=0.5)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise UnknownGame(
        f"unknown game {game_id!r}.{hint} Known games: {', '.join([*known_games(), *sorted(installed())])}; "
        f"any two-player environment of TextArena is {TEXTARENA}<its id>, and a game of your own module:Class"
    )


def resolve(game_id: str) -> str:
    """Our id of a game that can be played, for an id or an alias.

    Raises:
        UnknownGame: there is no such game, or it is none; the message says what to do.
        ImportError: the game, or a package that it needs, is not installed.
    """
    game_id = id_of(game_id)
    if game_id.startswith(TEXTARENA):
        from .textarena_game import entry_of

        entry_of(game_id)
    elif game_id not in _GAMES:
        game_class(game_id)
    return game_id


def make(game_id: str, seed: int) -> Game:
    """A fresh game of an id or an alias, or an error as of ``resolve``; the seed decides all of its randomness."""
    game_id = resolve(game_id)
    if game_id.startswith(TEXTARENA):
        from .textarena_game import TextArenaGame

        return TextArenaGame(seed, game_id)
    if game_id not in _GAMES:
        return game_class(game_id)(seed)
    module, name, arguments, _ = _GAMES[game_id]
    game: type[Game] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return game(seed, **arguments)


def make_named(game_id: str, seed: int, named: Container[str]) -> Game:
    """As ``make``, of an id that is read from a folder's records or config. ``named`` are the classes
    (``module:Class``) that the user has named; ``NotNamed``: the id is another class, which is not imported."""
    if is_class(game_id) and game_id not in named:
        raise NotNamed(game_id)
    return make(game_id, seed)
