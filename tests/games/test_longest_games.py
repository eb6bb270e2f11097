"""Games that are played as long as can be: by these the check before a run measures the longest prompts."""

from __future__ import annotations

import pytest

from recipe.spiral.games import make
from recipe.spiral.games.liars_dice import LiarsDice
from tests.games.playouts import OWN_GAMES

#: The most bytes that an observation may have. A tokenizer makes a token of each byte at worst, of four in English.
MOST = {"DontSayIt": 4800, "SimpleNegotiation": 3700, "SimpleNegotiation-5": 4600, "SimpleBlindAuction": 2000}
OTHERS = 1700


@pytest.mark.parametrize(
    "words", ["We could agree about it. " * 40, "สวัสดี" * 200, "🎲" * 1000], ids=["English", "Thai", "emoji"]
)
@pytest.mark.parametrize("game_id", OWN_GAMES)
def test_the_longest_games_are_legal_and_bounded(game_id: str, words: str) -> None:
    game, longest = make(game_id, 1), 0
    while not game.is_terminal:
        longest = max(longest, len(game.observation(game.current_player).encode()))
        action = game.longest_action(words)
        assert game.parse(action) == action
        game.step(action)
    assert longest < MOST.get(game_id, OTHERS)


def test_the_longest_bidding_is_short() -> None:
    """All sixty bids in turn: every raise is the lowest that there is."""
    game = LiarsDice(0)
    for action in game.actions[:-1]:
        assert game.longest_action("") == action
        game.step(action)
    assert "Bids in turn, you first: 1 x 1, 1 x 2, " in game.observation(0)
    assert "Bids in turn, opponent first: 1 x 1, 1 x 2, " in game.observation(1)
