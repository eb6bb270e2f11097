"""Rules by hand: ConnectFour, Nim, Breakthrough, Snake."""

from __future__ import annotations

import pytest

from recipe.spiral.games import Game, make
from recipe.spiral.games.breakthrough import Breakthrough
from recipe.spiral.games.snake import Snake


def play(game: Game, actions: str) -> Game:
    for action in actions.split():
        parsed = game.parse(action.replace("_", " "))
        assert parsed is not None
        game.step(parsed)
    return game


@pytest.mark.parametrize(
    "columns",
    ["0 1 0 1 0 1 0", "0 0 1 1 2 2 3", "0 1 1 2 2 3 2 3 3 6 3", "6 5 5 4 4 3 4 3 3 0 3"],
    ids=["column", "row", "rising", "falling"],
)
def test_four_in_a_row_win(columns: str) -> None:
    game = make("ConnectFour", 0)
    play(game, columns[:-2])
    assert not game.is_terminal
    play(game, columns[-1])
    assert game.rewards() == (1.0, -1.0)


def test_the_last_object_of_nim_wins() -> None:
    game = play(make("Nim", 0), "0_3 1_4 2_4")
    assert not game.is_terminal
    assert play(game, "2_1").rewards() == (-1.0, 1.0)


def test_a_piece_on_the_far_row_wins_breakthrough() -> None:
    game = play(Breakthrough(0, size=4), "a2b3 d3c2")
    assert "[b3b4]" not in game.legal_actions(), "straight ahead is blocked"
    assert play(game, "b3c4").rewards() == (1.0, -1.0)


def test_diagonal_steps_need_no_capture() -> None:
    """In TextArena's Breakthrough they do, against the rules of the game."""
    assert "[a2b3]" in make("Breakthrough", 0).legal_actions()


def snakes(first: list[tuple[int, int]], second: list[tuple[int, int]], apples: list[tuple[int, int]]) -> Snake:
    game = Snake(0, size=5)
    game.snakes, game.apples = [[*first], [*second]], [*apples]
    return game


@pytest.mark.parametrize(
    ("first", "second", "apples", "moves", "rewards"),
    [
        ([(0, 0)], [(4, 4)], [], "left up", (0.0, 0.0)),  # both at a wall
        ([(0, 0)], [(4, 4)], [], "left down", (-1.0, 1.0)),
        ([(1, 1)], [(3, 1)], [], "right left", (0.0, 0.0)),  # heads meet
        ([(1, 1)], [(2, 1)], [], "right left", (0.0, 0.0)),  # heads change places
        ([(1, 1)], [(2, 1), (2, 2), (2, 3)], [], "right right", (-1.0, 1.0)),  # where the head was is body now
        ([(1, 2)], [(2, 1), (2, 2), (2, 3)], [], "right right", (-1.0, 1.0)),  # into the body
        ([(1, 3)], [(2, 1), (2, 2), (2, 3)], [], "right right", None),  # the tail moves on
        ([(1, 3)], [(2, 1), (2, 2), (2, 3)], [(3, 1)], "right right", (-1.0, 1.0)),  # unless its snake eats
        ([(0, 0)], [(4, 4)], [(0, 1)], "up down left right", (1.0, -1.0)),  # both die at a wall, an apple decides
    ],
)
def test_who_survives(
    first: list[tuple[int, int]],
    second: list[tuple[int, int]],
    apples: list[tuple[int, int]],
    moves: str,
    rewards: tuple[float, float] | None,
) -> None:
    game = snakes(first, second, apples)
    play(game, moves)
    assert (game.rewards() if game.is_terminal else None) == rewards


def test_eating_grows_a_snake_and_brings_a_new_apple() -> None:
    game = play(snakes([(1, 1)], [(4, 4)], [(1, 2)]), "up down")
    assert game.snakes[0] == [(1, 2), (1, 1)] and game.eaten == [1, 0]
    assert len(game.apples) == 1 and game.apples != [(1, 2)]
