"""Games of records and configs that a folder keeps: a class is imported only where the user has named it."""

from __future__ import annotations

from collections.abc import Container

from .base import Game
from .outside import is_class
from .registry import make

#: What ``--game`` is for, in commands that read a folder.
NAMED = "a game's class in the folder that you trust: its code runs, so that its games can be played again"


class NotNamed(ImportError):
    """A file names a game from outside, and the user does not: it is not imported."""

    def __init__(self, game_id: str) -> None:
        super().__init__(f"a folder's own code is not imported; if you trust it, allow the game by --game {game_id}")


def make_named(game_id: str, seed: int, named: Container[str]) -> Game:
    """As ``make``, of an id that is read from a file. ``named`` are the classes (``module:Class``) that the user has
    named; ``NotNamed``: the id is another class."""
    if is_class(game_id) and game_id not in named:
        raise NotNamed(game_id)
    return make(game_id, seed)
