"""Games from users' own packages: ``my_package.my_game:Pennies``, or a name that an installed package gives to one.

A package names its games in the entry point group ``verl_spiral.games``. In its ``pyproject.toml``:

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
from functools import cache

from .base import TEXTARENA, Game, GameFailure, UnknownGame

GROUP = "verl_spiral.games"
#: An id goes into metrics' names, where "/" divides.
_NAME = re.compile(r"[\w.-]+", re.ASCII)


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
    try:
        cls = importlib.metadata.EntryPoint(game_id, place, GROUP).load()
    except ImportError as error:
        mend = "install its package, start where it lies with python -m, or name its folder in PYTHONPATH"
        raise ImportError(f"{place}: {error}; {mend}") from error
    except Exception as error:  # whatever the module raises
        raise UnknownGame(f"{place}: cannot be loaded as module:Class: {type(error).__name__}: {error}") from error
    if not inspect.isclass(cls) or not issubclass(cls, Game):
        raise UnknownGame(f"{place}: is no subclass of recipe.spiral.games.Game")
    try:
        _play(cls(0))
    except GameFailure:  # it does not know its legal actions
        pass
    except Exception as error:  # whatever the game raises
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = f"{type(error).__name__}: {error} ({last.filename}, line {last.lineno}: {last.line})"
        raise UnknownGame(f"{place}: cannot be played: {said}") from error
    return cls


def _play(game: Game) -> None:
    """One game at random, which raises what a training would trip over later, or train with (``check`` finds more)."""
    rng = random.Random(0)
    for _ in range(game.max_turns):
        if game.is_terminal:
            break
        game.observation(game.current_player)
        game.step(game.random_action(rng))
    if game.is_terminal not in (True,):  # also NumPy's
        raise ValueError(f"is_terminal is {game.is_terminal} after max_turns={game.max_turns} turns, and must be True")
    first, second = rewards = game.rewards()
    if not -1 <= first == -second <= 1:
        raise ValueError(f"rewards() are {rewards}, and must be two from -1 to 1 with sum 0")
