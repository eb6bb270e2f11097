"""Rules by hand, where OpenSpiel has no such game or others: Snake, rounds of KuhnPoker and of LiarsDice."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.games import Game
from recipe.spiral.games.kuhn_poker import KuhnPoker
from recipe.spiral.games.liars_dice import LiarsDice
from recipe.spiral.games.snake import Snake


def played(game: Game, actions: str) -> Game:
    for action in actions.split():
        parsed = game.parse(action.replace("_", " "))
        assert parsed is not None
        game.step(parsed)
    return game


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
    played(game, moves)
    assert (game.rewards() if game.is_terminal else None) == rewards


def test_eating_grows_a_snake_and_brings_a_new_apple() -> None:
    game = played(snakes([(1, 1)], [(4, 4)], [(1, 2)]), "up down")
    assert game.snakes[0] == [(1, 2), (1, 1)] and game.eaten == [1, 0]
    assert len(game.apples) == 1 and game.apples != [(1, 2)]


def test_the_most_chips_win_and_the_starter_alternates() -> None:
    """Upstream the winner of the last round takes the game, and player 1 begins most rounds."""
    starters, decided_by_last, games = [], 0, 0
    for seed in range(300):
        game, rng = KuhnPoker(seed, rounds=5), random.Random(seed)
        chips, last = 0, 0
        while not game.is_terminal:
            before = game.won
            if not game.history:
                starters.append(game.current_player)
            game.step(game.random_action(rng))
            if game.won != before:
                chips, last = chips + game.won - before, game.won - before
        assert game.rewards()[0] == (chips > 0) - (chips < 0)
        games += 1
        decided_by_last += (chips > 0) == (last > 0)
    assert starters == [0, 1, 0, 1, 0] * 300
    assert decided_by_last < games


@pytest.mark.parametrize("truth", [True, False])
def test_who_is_wrong_loses_a_die_and_starts(truth: bool) -> None:
    game = LiarsDice(0, dice=2)
    game.dice = ([3, 3], [3, 5] if truth else [5, 5])
    for action in ("[bid: 3, 3]", "[call]"):
        game.step(action)
    loser = 1 if truth else 0
    assert game.counts[loser] == 1 and game.current_player == loser
    assert [len(dice) for dice in game.dice] == game.counts
