"""Counts by hand, intervals by the book, and random players that are as good as each other."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.matches.matchups import MatchUp, Plan
from recipe.spiral.lab.evaluation.ratings.game_results import GameResult
from recipe.spiral.lab.evaluation.ratings.statistics import Mean, PerTurn, Rate, Result, Tabulation
from recipe.spiral.players.intervals import wilson
from recipe.spiral.players.records import GameRecord
from tests.lab.evaluation.made import at_random, game_of, losing, plan
from tests.made import record, turn


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


@given(st.integers(1, 2000).flatmap(lambda of: st.tuples(st.integers(0, of), st.just(of))))
def test_an_interval_holds_its_share_and_mirrors(case: tuple[int, int]) -> None:
    count, of = case
    low, high = wilson(count, of)
    assert 0 <= low <= count / of <= high <= 1
    assert wilson(of - count, of) == (pytest.approx(1 - high), pytest.approx(1 - low))
    # its ends are where the share is so many standard errors away
    for end in {low, high} - {0.0, 1.0}:
        assert abs(count / of - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / of), rel=1e-4)


@pytest.mark.parametrize(("count", "of"), [(0, 0), (-1, 5), (6, 5)])
def test_no_share_no_interval(count: int, of: int) -> None:
    with pytest.raises(ValueError, match="no share"):
        wilson(count, of)


def tabulate(records: Iterable[GameRecord]) -> list[Result]:
    table = Tabulation()
    for played in records:
        table.add(played)
    return table.results()


def by_role(records: list[GameRecord]) -> dict[tuple[str, int | None], Result]:
    return {(result.policy, result.role): result for result in tabulate(records)}


def games() -> list[GameRecord]:
    """Of a against random: won, drawn by the cap, lost by an illegal turn; as player 1 won by the opponent's, lost."""
    first, second, third, fourth, fifth, sixth = plan(3, ("a", "random", "TicTacToe"))
    capped = replace(game_of(second, "draw"), termination="turn_cap")
    capped.turns = [turn(0, 0, length=4), turn(1, 0), turn(0, 1, length=6, truncated=True)]
    won = losing(replace(fourth, id=fourth.id._replace(role=0)))  # player 0, the opponent, errs
    won = replace(won, players=("random", "a"), trainable=(1,))
    return [game_of(first), capped, losing(third), won, game_of(fifth, "loss"), game_of(sixth, discarded="void")]


def test_everything_is_counted_by_role() -> None:
    results = by_role(games())
    assert set(results) == {("a", 0), ("a", 1), ("a", None)}
    first, second, both = results["a", 0], results["a", 1], results["a", None]
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


def test_a_game_that_a_prompt_ended_is_lost_for_both_and_moves_no_rating() -> None:
    ended = replace(game_of(next(iter(plan(1)))), termination="prompt_too_long", rewards=(-1.0, -1.0))
    result = tabulate([ended])[0]
    assert (result.prompt_too_long, result.loss, result.draw) == (Rate(1, 1), Rate(1, 1), Rate(0, 1))
    rated = GameResult.of(ended)
    assert rated is not None and rated.outcome == "draw"


def test_void_games_alone_are_no_rate() -> None:
    void = game_of(next(iter(plan(1))), discarded="void")
    result = tabulate([void])[0]
    assert (result.games, result.void) == (0, 1)
    assert result.win.value is result.win.low is result.reward.value is result.truncated.value is None


def test_one_game_has_no_standard_error() -> None:
    assert tabulate([game_of(next(iter(plan(1))))])[0].reward == Mean(1.0, None, 1)


@given(st.permutations(games()))
def test_the_order_of_games_is_nothing(shuffled: list[GameRecord]) -> None:
    assert tabulate(shuffled) == tabulate(games())


@given(st.lists(st.sampled_from(["win", "draw", "loss", "invalid", "void"]), min_size=1, max_size=30), st.booleans())
def test_no_share_is_over_one(endings: list[str], cut: bool) -> None:
    records = []
    for game, ending in zip(plan(30), endings, strict=False):
        if ending == "invalid":
            records.append(losing(game))
        elif ending == "void":
            records.append(game_of(game, discarded="void"))
        else:
            records.append(game_of(game, ending))  # type: ignore[arg-type]
        for each in records[-1].turns:
            each.truncated = cut
    for result in tabulate(records):
        assert result.win.count + result.draw.count + result.loss.count == result.games
        assert result.invalid.count <= result.loss.count
        for rate in (result.win, result.draw, result.loss, result.invalid, result.opponent_invalid, result.turn_cap):
            assert rate.of == result.games
            assert rate.value is None or 0 <= rate.value <= 1
        assert result.truncated.total <= result.truncated.turns
    assert sum(result.void for result in tabulate(records) if result.role is None) == endings.count("void")


def test_players_without_tokens_have_none() -> None:
    result = tabulate([at_random(next(iter(plan(1))))])[0]
    assert result.response_tokens == PerTurn(0, 0)
    assert result.truncated.value == 0.0


@pytest.mark.parametrize("name", ["Nim", "LiarsDice-3", "Snake", "Breakthrough-5"])
def test_random_against_random_is_even_in_symmetric_games(name: str) -> None:
    for match_up in (MatchUp("random", "random", name), MatchUp("other", "random", name)):
        results = tabulate(map(at_random, Plan((match_up,), 60, seed=1)))
        for result in results:
            decided = result.win.count + result.loss.count
            low, high = wilson(result.win.count, decided)
            assert low <= 0.5 <= high, result


def test_even_asymmetric_games_are_fair_over_both_roles() -> None:
    """TicTacToe at random: 58% for the first player, 29% for the second."""
    first, second, both = tabulate(map(at_random, Plan((MatchUp("random", "random", "TicTacToe"),), 150)))
    assert first.win.low is not None and second.win.high is not None
    assert first.win.low > second.win.high
    low, high = wilson(both.win.count, both.win.count + both.loss.count)
    assert low <= 0.5 <= high


def test_games_of_self_play_are_no_evaluation() -> None:
    with pytest.raises(ValueError, match="trainable"):
        tabulate([record(0)])
    with pytest.raises(ValueError, match="surplus"):
        tabulate([game_of(next(iter(plan(1))), discarded="surplus")])
