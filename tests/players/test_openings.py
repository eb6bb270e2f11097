"""Random openings: legal, of all lengths, never the end, and of the key alone."""

from __future__ import annotations

from collections import Counter

import pytest

from recipe.spiral.games import make
from recipe.spiral.match import random_opening
from recipe.spiral.players.seeds import GameKey
from tests.games.playouts import EVERY_GAME

KEYS = [GameKey("train", 5, 1, index) for index in range(400)]


def test_each_number_of_moves_and_each_first_move_is_as_likely() -> None:
    openings = [random_opening(key, make("TicTacToe", key.game_seed()), 4) for key in KEYS]
    lengths = Counter(map(len, openings))
    assert lengths.keys() == {0, 1, 2, 3, 4} and min(lengths.values()) > 55
    first = Counter(moves[0] for moves in openings if moves)
    assert first.keys() == {f"[{square}]" for square in range(9)} and min(first.values()) > 20


@pytest.mark.parametrize("game_id", EVERY_GAME)
def test_a_game_goes_on_after_its_opening(game_id: str) -> None:
    for key in KEYS[:10]:
        game = make(game_id, key.game_seed())
        before = game.observation(game.current_player)
        moves = random_opening(key, game, 30)
        assert game.observation(game.current_player) == before
        assert moves == random_opening(key, make(game_id, key.game_seed()), 30)
        for move in moves:
            game.step(move)
        assert not game.is_terminal


def test_games_of_one_start_have_the_same_opening() -> None:
    group = [GameKey("train", 5, 1, index, group=8) for index in range(8, 16)]
    openings = {tuple(random_opening(key, make("TicTacToe", key.game_seed()), 4)) for key in group}
    assert openings == {tuple(random_opening(GameKey("train", 5, 1, 8), make("TicTacToe", 0), 4))}
