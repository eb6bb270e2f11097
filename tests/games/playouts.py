"""What the tests of the games share: which games there are, and how to play one."""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Iterator

import pytest

from recipe.spiral.games import Game, known_games, make

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


def playout(game: Game, rng: random.Random) -> Iterator[tuple[Game, str]]:
    """Play ``game`` at random, giving it and the action at every state before the action is taken."""
    while not game.is_terminal:
        action = game.random_action(rng)
        yield game, action
        game.step(action)


def trace(game_id: str, seed: int) -> list[str]:
    """All that is seen and done in a random game."""
    game = make(game_id, seed)
    seen = [
        f"{game.observation(0)}|{game.observation(1)}|{action}"
        for _, action in playout(game, random.Random(f"player {seed}"))
    ]
    return [*seen, game.render(), str(game.rewards())]
