"""Games: pure Python, no models, no global state. ``make(id, seed)`` starts one."""

from .base import Game, GameFailure, IllegalAction, UnknownGame
from .registry import id_of, known_games, make, resolve

__all__ = ["Game", "GameFailure", "IllegalAction", "UnknownGame", "id_of", "known_games", "make", "resolve"]
