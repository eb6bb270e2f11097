"""What the tests of games share: which games there are, how to play one, and a game as users write them."""

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


PENNIES = '''"""Matching pennies: both choose a side at the same time; player 0 wins if they are the same."""

from recipe.spiral.games.base import Game, IllegalAction, win

SIDES = ("[heads]", "[tails]")


class Pennies(Game):
    actions = SIDES
    max_turns = 2

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.choices: list[str] = []

    @property
    def current_player(self) -> int:
        return len(self.choices)

    @property
    def is_terminal(self) -> bool:
        return len(self.choices) == 2

    def legal_actions(self) -> tuple[str, ...]:
        return () if self.is_terminal else SIDES

    def step(self, action: str) -> None:
        if action not in self.legal_actions():
            raise IllegalAction(f"{action} is no side")
        self.choices.append(action)

    def rewards(self) -> tuple[float, float]:
        return win(int(self.choices[0] != self.choices[1]))

    def change_private(self, player: int) -> None:
        if player == 0 and self.choices:
            self.choices[0] = SIDES[1 - SIDES.index(self.choices[0])]

    def observation(self, player: int) -> str:
        aim = "the same side as the opponent" if player == 0 else "the other side than the opponent"
        return f"Matching pennies. You win with {aim}. Answer with [heads] or [tails]."

    def render(self) -> str:
        return f"Pennies, {self.choices}"
'''
