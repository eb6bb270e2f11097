"""Games from users' own packages: ``my_package.my_game:Pennies``, or a name that an installed package gives to one.

A package names its games in the entry point group ``verl_spiral.games``. In its ``pyproject.toml``:

    [project.entry-points."verl_spiral.games"]
    Pennies = "my_package.my_game:Pennies"
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import inspect
import os
import random
import re
import sys
import time
import traceback
from contextlib import suppress
from functools import cache
from types import ModuleType

from .base import TEXTARENA, Game, GameFailure, IllegalAction, UnknownGame

GROUP = "verl_spiral.games"
#: A module and a class in it.
_PLACE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*)", re.ASCII)
#: An id goes into metrics' names, where "/" divides.
_NAME = re.compile(r"[\w.-]+", re.ASCII)
#: So long the game that tries a class goes on; each of a run's processes plays it.
SECONDS = 3.0


@cache
def installed() -> dict[str, str]:
    """Names that installed packages give to games -> ``module:Class``. What lies in the working directory, where
    ``python -m`` looks as well, is not installed."""
    here = os.path.realpath(os.curdir)
    folders = [folder for folder in sys.path if os.path.realpath(folder) != here]
    packages = importlib.metadata.distributions(path=folders)
    return {point.name: point.value for package in packages for point in package.entry_points if point.group == GROUP}


def is_class(game_id: str) -> bool:
    """Whether an id is a module's and a class's: to make the game runs their code."""
    return ":" in game_id and not game_id.startswith(TEXTARENA)


def is_outside(game_id: str) -> bool:
    """Whether an id is a module's and a class's, or a name that a package gives."""
    return is_class(game_id) or game_id in installed()


@cache
def game_class(game_id: str) -> type[Game]:
    """The class of a game from outside, or an error as of ``registry.resolve``. One game is played, to try it."""
    place = game_id if ":" in game_id else installed()[game_id]
    if place != game_id and not _NAME.fullmatch(game_id):
        raise UnknownGame(f"{game_id!r}: a game's name may have letters, digits, '_', '-' and '.' only")
    match = _PLACE.fullmatch(place)
    if match is None:
        raise UnknownGame(f"unknown game {place!r}: your own is module:Class, as in my_package.my_game:Pennies")
    cls = _class(_module(match[1], place), match[2], place)
    if missing := sorted(cls.__abstractmethods__):
        raise UnknownGame(f"{place} lacks {', '.join(missing)}, which every Game must have")
    try:
        game = cls(0)
        turns = getattr(game, "max_turns", None)
    except Exception as error:  # whatever the game raises
        raise UnknownGame(f"{place}(seed) cannot be made: {type(error).__name__}: {error}") from error
    if type(turns) is not int or turns < 1 or not hasattr(game, "random"):
        raise UnknownGame(
            f"{place} has max_turns={turns!r}: call super().__init__(seed), and set it to the largest number of turns"
        )
    if broken := _broken(game):
        raise UnknownGame(f"{place}: {broken}")
    return cls


def _broken(game: Game) -> str:
    """What a game breaks of ``Game``'s contract in a random game of a few seconds, also by an error; "": nothing."""
    try:
        if (over := game.is_terminal) not in (True, False):  # also NumPy's
            return f"is_terminal is {over}, and must be True or False: make it a property"
        rng, until = random.Random(0), time.monotonic() + SECONDS
        for _ in range(game.max_turns):
            if game.is_terminal:
                break
            if time.monotonic() > until:
                return ""
            if not isinstance(game.observation(game.current_player), str):
                return "observation(player) must be a text"
            game.step(game.random_action(rng))
        if not game.is_terminal:
            return f"goes on after max_turns={game.max_turns} turns"
        with suppress(IllegalAction):
            game.step("[no action]")
            return "step(action) must raise IllegalAction for what is no legal action, and when the game is over"
        first, second = rewards = game.rewards()
        return "" if -1 <= first == -second <= 1 else f"rewards() are {rewards}: must be two from -1 to 1 with sum 0"
    except GameFailure:  # it does not know its legal actions
        return ""
    except Exception as error:  # whatever the game raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        return f"cannot be played: {type(error).__name__}: {error} ({last.filename}, line {last.lineno}: {last.line})"


def _module(name: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise ImportError(f"{place}: importing {name} failed: {error}") from error
        raise ImportError(
            f"{place}: there is no module {error.name!r}: install its package, start where it lies with python -m, or "
            "name its folder in PYTHONPATH"
        ) from error
    except Exception as error:  # whatever the module raises
        raise UnknownGame(f"{place}: importing {name} failed: {type(error).__name__}: {error}") from error


def _class(module: ModuleType, name: str, place: str) -> type[Game]:
    named = getattr(module, name, None)
    if inspect.isclass(named) and issubclass(named, Game):
        return named
    classes = inspect.getmembers(module, lambda value: inspect.isclass(value) and issubclass(value, Game))
    games = [other for other, value in classes if value.__module__ == module.__name__]
    hint = difflib.get_close_matches(name, games, n=1, cutoff=0.5) or games
    what = "is no subclass of recipe.spiral.games.Game" if named is not None else f"{module.__name__} has no {name!r}"
    raise UnknownGame(f"{place}: {what}; its games: {', '.join(hint) or 'none'}")
