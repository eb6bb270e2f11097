"""All games by id. A new game of this repository is one file and one line in ``_GAMES``.

A game's module is imported when the game is made. Besides ours there are TextArena's two-player environments
(``textarena:<id>``) and games of users' own packages: ``my_package.my_game:Pennies``, or a name that an installed
package gives to one in its ``pyproject.toml``:

    [project.entry-points."verl_spiral.games"]
    Pennies = "my_package.my_game:Pennies"
"""

from __future__ import annotations

import importlib.metadata
import inspect
import os
import random
import re
import sys
import traceback
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from .base import TEXTARENA, Game, GameFailure, UnknownGame

GROUP = "verl_spiral.games"
#: An id goes into metrics' names, where "/" divides.
_NAME = re.compile(r"[\w.-]+", re.ASCII)


class _Entry(NamedTuple):
    """A game's module, whose class is called as the id up to a "-"; its arguments; its names in TextArena (-v0) and in
    SPIRAL (-v1, -v2)."""

    module: str
    arguments: Mapping[str, Any]
    aliases: str = ""


_GAMES = {
    "TicTacToe": _Entry("tictactoe", {}, "TicTacToe-v0"),
    "KuhnPoker": _Entry("kuhn_poker", {"rounds": 1}),
    "KuhnPoker-3": _Entry("kuhn_poker", {"rounds": 3}, "KuhnPoker-v0"),
    "KuhnPoker-5": _Entry("kuhn_poker", {"rounds": 5}, "KuhnPoker-v1 KuhnPoker-v0-short"),
    "ConnectFour": _Entry("connect_four", {}, "ConnectFour-v0"),
    "PigDice": _Entry("pig_dice", {"target": 50, "rounds": 25}, "PigDice-v1 PigDice-v0-50"),
    "PigDice-100": _Entry("pig_dice", {"target": 100, "rounds": 50}, "PigDice-v0 PigDice-v0-100"),
    "LiarsDice": _Entry("liars_dice", {"dice": 5}, "LiarsDice-v1 LiarsDice-v0"),
    "LiarsDice-3": _Entry("liars_dice", {"dice": 3}, "LiarsDice-v0-small"),
    "LiarsDice-1": _Entry("liars_dice", {"dice": 1}),
    "Nim": _Entry("nim", {"piles": (3, 4, 5)}, "Nim-v0"),
    "Snake": _Entry("snake", {"size": 5, "apples": 2, "steps": 20}, "Snake-v0"),
    "Snake-10": _Entry("snake", {"size": 10, "apples": 3, "steps": 50}, "Snake-v0-standard"),
    "Breakthrough": _Entry("breakthrough", {"size": 8}, "Breakthrough-v0"),
    "Breakthrough-5": _Entry("breakthrough", {"size": 5}, "Breakthrough-v0-tiny"),
    "SimpleNegotiation": _Entry("simple_negotiation", {"goods": 2}, "SimpleNegotiation-v1"),
    "SimpleNegotiation-5": _Entry("simple_negotiation", {"goods": 5}, "SimpleNegotiation-v2 SimpleNegotiation-v0"),
    "SimpleBlindAuction": _Entry("simple_blind_auction", {}, "SimpleBlindAuction-v1 SimpleBlindAuction-v0"),
    "TruthAndDeception": _Entry("truth_and_deception", {}, "TruthAndDeception-v1 TruthAndDeception-v0"),
    "DontSayIt": _Entry("dont_say_it", {}, "DontSayIt-v0"),
    "WordChains": _Entry("word_games", {}, "WordChains-v1 WordChains-v0"),
    "SpellingBee": _Entry("word_games", {}, "SpellingBee-v1 SpellingBee-v0"),
}
_ALIASES = {alias: game_id for game_id, entry in _GAMES.items() for alias in entry.aliases.split()}


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
    if game_id.startswith(TEXTARENA) or is_class(game_id) or game_id in installed():
        return game_id
    raise UnknownGame(
        f"unknown game {game_id!r}. Known games: {', '.join([*known_games(), *sorted(installed())])}; "
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
    entry = _GAMES[game_id]
    game: type[Game] = getattr(importlib.import_module(f"{__package__}.{entry.module}"), game_id.partition("-")[0])
    return game(seed, **entry.arguments)


def is_class(game_id: str) -> bool:
    """Whether an id is a module's and a class's: to make the game runs their code."""
    return ":" in game_id and not game_id.startswith(TEXTARENA)


@cache
def installed() -> dict[str, str]:
    """Names that installed packages give to games -> ``module:Class``. What lies in the working directory, where
    ``python -m`` looks as well, is not installed."""
    here = os.path.realpath(os.curdir)
    folders = [folder for folder in sys.path if os.path.realpath(folder) != here]
    packages = importlib.metadata.distributions(path=folders)
    return {point.name: point.value for package in packages for point in package.entry_points if point.group == GROUP}


@cache
def game_class(game_id: str) -> type[Game]:
    """The class of a game from outside, or an error as of ``resolve``. One game is played, to try it."""
    place = game_id if is_class(game_id) else installed()[game_id]
    if place != game_id and not _NAME.fullmatch(game_id):
        raise UnknownGame(f"{game_id!r}: a game's name may have letters, digits, '_', '-' and '.' only")
    try:
        cls: type[Game] = importlib.metadata.EntryPoint(game_id, place, GROUP).load()
        _try(cls)
    except ImportError as error:
        mend = "install its package, start where it lies with python -m, or name its folder in PYTHONPATH"
        raise ImportError(f"{place}: {error}; {mend}") from error
    except Exception as error:  # whatever the module or the game raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno}: {last.line})"
        raise UnknownGame(f"{place}: is no game that can be played: {said}") from error
    return cls


def _try(cls: type[Game]) -> None:
    """One game at random, which raises what a training would trip over later, or train with (``check`` finds more)."""
    if not inspect.isclass(cls) or not issubclass(cls, Game):
        raise TypeError("it is no subclass of recipe.spiral.games.Game")
    game, rng = cls(0), random.Random(0)
    with suppress(GameFailure):  # it does not know its legal actions
        for _ in range(game.max_turns):
            if game.is_terminal:
                break
            game.observation(game.current_player)
            game.step(game.random_action(rng))
        if game.is_terminal not in (True,):  # also NumPy's
            raise ValueError(f"is_terminal is {game.is_terminal} after max_turns={game.max_turns}, and must be True")
        first, second = rewards = game.rewards()
        if not -1 <= first == -second <= 1:
            raise ValueError(f"rewards() are {rewards}, and must be two from -1 to 1 with sum 0")
