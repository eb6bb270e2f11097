"""Rules by hand: ConnectFour, Nim, Breakthrough, Snake, KuhnPoker, PigDice, LiarsDice."""

from __future__ import annotations

import random

import pytest

from recipe.spiral.games import Game, make
from recipe.spiral.games.breakthrough import Breakthrough
from recipe.spiral.games.kuhn_poker import KuhnPoker
from recipe.spiral.games.liars_dice import LiarsDice
from recipe.spiral.games.pig_dice import PigDice
from recipe.spiral.games.snake import Snake


def played(game: Game, actions: str) -> Game:
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
    played(game, columns[:-2])
    assert not game.is_terminal
    played(game, columns[-1])
    assert game.rewards() == (1.0, -1.0)


def test_the_last_object_of_nim_wins() -> None:
    game = played(make("Nim", 0), "0_3 1_4 2_4")
    assert not game.is_terminal
    assert played(game, "2_1").rewards() == (-1.0, 1.0)


def test_a_piece_on_the_far_row_wins_breakthrough() -> None:
    game = played(Breakthrough(0, size=4), "a2b3 d3c2")
    assert "[b3b4]" not in game.legal_actions(), "straight ahead is blocked"
    assert played(game, "b3c4").rewards() == (1.0, -1.0)


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
    played(game, moves)
    assert (game.rewards() if game.is_terminal else None) == rewards


def test_eating_grows_a_snake_and_brings_a_new_apple() -> None:
    game = played(snakes([(1, 1)], [(4, 4)], [(1, 2)]), "up down")
    assert game.snakes[0] == [(1, 2), (1, 1)] and game.eaten == [1, 0]
    assert len(game.apples) == 1 and game.apples != [(1, 2)]


@pytest.mark.parametrize(
    ("actions", "chips"),
    [
        (["[check]", "[check]"], 1),
        (["[bet]", "[call]"], 2),
        (["[check]", "[bet]", "[call]"], 2),
        (["[bet]", "[fold]"], 1),
        (["[check]", "[bet]", "[fold]"], 1),
    ],
)
def test_the_pot_of_kuhn_poker_grows(actions: list[str], chips: int) -> None:
    """Upstream a called bet wins no more than a checked hand."""
    game = KuhnPoker(0)
    for action in actions:
        game.step(action)
    assert abs(game.rewards()[0]) == chips / 2


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


def test_a_roll_does_not_pass_the_turn_and_is_legal() -> None:
    """Upstream "the same player moves again" was taken for an illegal action."""
    for seed in range(50):
        game = PigDice(seed)
        game.step("[roll]")
        assert game.current_player == (0 if game.round_sum else 1)
        assert game.legal_actions() == ("[roll]", "[hold]")


def test_a_one_loses_the_sum_and_a_hold_keeps_it() -> None:
    game = next(game for game in map(PigDice, range(100)) if game.copy().random.randint(1, 6) == 1)
    game.round_sum = 17
    game.step("[roll]")
    assert (game.scores, game.current_player) == ([0, 0], 1)
    game.round_sum = 17
    game.step("[hold]")
    assert (game.scores, game.current_player) == ([0, 17], 0)


def test_a_higher_quantity_may_have_a_lower_face() -> None:
    """TextArena refuses that, though its prompt allows it."""
    game = LiarsDice(0)
    game.step("[bid: 3, 5]")
    legal = game.legal_actions()
    assert {"[bid: 4, 1]", "[bid: 3, 6]", "[bid: 10, 6]", "[call]"} <= {*legal}
    assert not {"[bid: 3, 5]", "[bid: 3, 4]", "[bid: 2, 6]"} & {*legal}


@pytest.mark.parametrize("truth", [True, False])
def test_who_is_wrong_loses_a_die_and_starts(truth: bool) -> None:
    game = LiarsDice(0, dice=2)
    game.dice = ([3, 3], [3, 5] if truth else [5, 5])
    for action in ("[bid: 3, 3]", "[call]"):
        game.step(action)
    loser = 1 if truth else 0
    assert game.counts[loser] == 1 and game.current_player == loser
    assert [len(dice) for dice in game.dice] == game.counts
