"""Counts by hand, and intervals by the book."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest

from recipe.spiral.lab.evaluation.matchups import GameId
from recipe.spiral.lab.evaluation.tabulation import Mean, PerTurn, Rate, Tabulation
from recipe.spiral.players.records import GameRecord
from recipe.spiral.training.metrics import wilson
from tests.lab.evaluation.made import game_of, losing, plan
from tests.made import turn


@pytest.mark.parametrize(
    ("count", "of", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
        (20, 20, 0.8389, 1.0),
    ],
)
def test_intervals_are_those_of_the_book(count: int, of: int, low: float, high: float) -> None:
    assert wilson(count, of) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def tabulate(records: Iterable[GameRecord]) -> Tabulation:
    table = Tabulation()
    for played in records:
        table.add(GameId.of(played), played)
    return table


def games() -> list[GameRecord]:
    """Of a against random: won, drawn by the cap, lost by an illegal turn; as player 1 won by the opponent's, lost."""
    first, second, third, fourth, fifth, sixth = plan(3, ("a", "random", "TicTacToe"))
    capped = replace(game_of(second, "draw"), termination="turn_cap")
    capped.turns = [turn(0, 0, length=4), turn(1, 0), turn(0, 1, length=6, truncated=True)]
    won = losing(fourth._replace(role=0))  # player 0, the opponent, errs
    won = replace(won, players=("random", "a"), trainable=(1,))
    return [game_of(first), capped, losing(third), won, game_of(fifth, "loss"), game_of(sixth, discarded="void")]


def test_everything_is_counted_by_role() -> None:
    results = {result.role: result for result in tabulate(games()).results()}
    first, second, both = results[0], results[1], results[None]
    assert (first.win, first.draw, first.loss) == (Rate(1, 3), Rate(1, 3), Rate(1, 3))
    assert (first.invalid, first.opponent_invalid, first.turn_cap) == (Rate(1, 3), Rate(0, 3), Rate(1, 3))
    assert first.reward.value == pytest.approx((1 + 0 - 1.5) / 3)
    assert first.reward.error == pytest.approx(math.sqrt((49 / 36 + 1 / 36 + 64 / 36) / 2 / 3))
    assert first.turns.value == pytest.approx(4 / 3)
    assert first.response_tokens == PerTurn(2 + 4 + 6 + 2, 4)
    assert first.truncated == PerTurn(1, 4)
    assert (second.win, second.loss, second.invalid) == (Rate(1, 2), Rate(1, 2), Rate(0, 2))
    assert (second.opponent_invalid, second.games, second.void) == (Rate(1, 2), 2, 1)
    assert second.turns == Mean(0.5, 0.5, 2), "it never moved in the game that the opponent lost at once"
    assert (both.games, both.void, both.win, both.invalid) == (5, 1, Rate(2, 5), Rate(1, 5))


def test_outcomes_are_player_0s() -> None:
    first, second = ("a", "random", "TicTacToe"), ("random", "a", "TicTacToe")
    assert tabulate(games()).outcomes() == {first: (1, 1, 1), second: (1, 0, 1)}


def test_a_game_that_a_prompt_ended_is_lost_for_both_and_moves_no_rating() -> None:
    ended = replace(game_of(next(iter(plan(1)))), termination="prompt_too_long", rewards=(-1.0, -1.0))
    table = tabulate([ended])
    result = table.results()[0]
    assert (result.prompt_too_long, result.loss, result.draw) == (Rate(1, 1), Rate(1, 1), Rate(0, 1))
    assert table.outcomes() == {("a", "random", "TicTacToe"): (0, 1, 0)}


def test_void_games_alone_are_no_rate_and_one_game_has_no_error() -> None:
    void = tabulate([game_of(next(iter(plan(1))), discarded="void")])
    result = void.results()[0]
    assert (result.games, result.void, void.outcomes()) == (0, 1, {})
    assert result.win.value is result.win.low is result.reward.value is result.truncated.value is None
    assert tabulate([game_of(next(iter(plan(1))))]).results()[0].reward == Mean(1.0, None, 1)
