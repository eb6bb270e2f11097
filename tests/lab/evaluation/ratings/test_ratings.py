"""Ratings: strengths that were planted are found."""

from __future__ import annotations

import math

import pytest

from recipe.spiral.lab.evaluation.ratings import ALL, Rating, Ratings, head_to_head, rate
from tests.lab.evaluation.made import planted

STRENGTHS = {"random": 0.0, "b": 50.0, "c": 120.0, "d": 300.0, "e": -200.0}
#: (id, first-player advantage in Elo, inclination to draws)
GAMES = (("TicTacToe", 60.0, -0.5), ("KuhnPoker", -30.0, -20.0), ("DontSayIt", 0.0, 1.5))


def elo_of(name: str, ratings: Ratings) -> Rating:
    return next(player for player in ratings.players if player.name == name)


def test_planted_strengths_are_within_their_intervals() -> None:
    """As often as 95% intervals should hold them, with draws, several games and an advantage of playing first."""
    held, advantages, runs = 0, 0, 40
    for seed in range(runs):
        ratings = rate(ALL, planted(STRENGTHS, 15, seed, GAMES), "random")
        for player in ratings.players:
            held += player.low <= STRENGTHS[player.name] <= player.high
        for game, advantage, _ in GAMES:
            (terms,) = [terms for terms in ratings.games if terms.game == game]
            advantages += terms.first_player.low <= advantage <= terms.first_player.high
    # the anchor always is; of 160 (120) others 152 (114) are to be expected, and 9 fewer in one of a thousand tests
    assert 143 <= held - runs <= 159
    assert 106 <= advantages <= 120


def test_many_games_find_strengths_advantages_and_draws() -> None:
    ratings = rate(ALL, planted(STRENGTHS, 1000, 1, GAMES), "random")
    assert [player.name for player in ratings.players] == ["d", "c", "b", "random", "e"]
    for player in ratings.players:
        assert player.elo == pytest.approx(STRENGTHS[player.name], abs=15)
    for terms, (game, advantage, inclination) in zip(ratings.games, sorted(GAMES), strict=True):
        assert terms.game == game
        assert terms.first_player.elo == pytest.approx(advantage, abs=15)
        assert terms.draws == pytest.approx(math.exp(inclination) / (math.exp(inclination) + 2), abs=0.01)


def test_four_hundred_points_are_odds_of_ten_to_one() -> None:
    ratings = rate("Nim", {("a", "b", "Nim"): (1000, 0, 100), ("b", "a", "Nim"): (100, 0, 1000)}, "b")
    assert ratings.players[0].elo == pytest.approx(400, abs=1.0)
    # the information of 2200 games with chances of 10/11 and 1/11
    half = 1.959964 * 400 / math.log(10) / math.sqrt(2200 * 10 / 121)
    assert ratings.players[0].high - 400 == pytest.approx(half, rel=0.02)


def test_without_an_anchor_the_mean_is_zero() -> None:
    games = planted(STRENGTHS, 30)
    free, anchored = rate(ALL, games), rate(ALL, games, "c")
    assert rate(ALL, games, "nobody") == free
    assert sum(player.elo for player in free.players) == pytest.approx(0.0, abs=1e-6)
    assert elo_of("c", anchored).elo == 0.0
    assert elo_of("d", free).elo - elo_of("e", free).elo == pytest.approx(
        elo_of("d", anchored).elo - elo_of("e", anchored).elo
    )


def test_the_head_to_head_is_counted_from_both_sides() -> None:
    pairs = head_to_head({("a", "b", "Nim"): (1, 1, 0), ("b", "a", "Nim"): (1, 0, 1), ("a", "a", "Nim"): (1, 0, 0)})
    assert [(pair.name, pair.other) for pair in pairs] == [("a", "b"), ("b", "a")]
    assert [(pair.wins, pair.draws, pair.losses, pair.score) for pair in pairs] == [(2, 1, 1, 0.625), (1, 1, 2, 0.375)]
