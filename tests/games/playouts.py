"""What the tests of the games share: which games there are, and how to play one."""

from __future__ import annotations

import importlib.util

import pytest

from recipe.spiral.games import known_games
from recipe.spiral.games.check import playout, trace

__all__ = ["EVERY_GAME", "OWN_GAMES", "TEXTARENA", "WORD_GAMES", "needs_textarena", "needs_words", "playout", "trace"]

needs_words = pytest.mark.skipif(importlib.util.find_spec("spellchecker") is None, reason="needs the extra 'words'")
needs_textarena = pytest.mark.skipif(
    importlib.util.find_spec("textarena") is None, reason="needs the extra 'textarena'"
)
#: Environments of TextArena that go through the shared tests too: a board, cards, dice, talk.
TEXTARENA = (
    "textarena:Nim-v0",
    "textarena:KuhnPoker-v0",
    "textarena:PigDice-v0-short",
    "textarena:SimpleNegotiation-v0",
)
WORD_GAMES = ("WordChains", "SpellingBee")

OWN_GAMES = [pytest.param(game_id, marks=needs_words if game_id in WORD_GAMES else ()) for game_id in known_games()]
EVERY_GAME = [*OWN_GAMES, *(pytest.param(game_id, marks=needs_textarena) for game_id in TEXTARENA)]
