"""Ratings: strengths that were planted are found, and so is what no rating can say."""

from __future__ import annotations

import math
import random

import pytest

from recipe.spiral.lab.evaluation.ratings.elo import Rating, Ratings
from recipe.spiral.lab.evaluation.ratings.game_results import GameResult, head_to_head
from recipe.spiral.lab.evaluation.ratings.transitivity import cycles, transitivity
from tests.lab.evaluation.made import planted

STRENGTHS = {"random": 0.0, "b": 50.0, "c": 120.0, "d": 300.0, "e": -200.0}
#: (id, first-player advantage in Elo, inclination to draws)
GAMES = (("TicTacToe", 60.0, -0.5), ("KuhnPoker", -30.0, -20.0), ("DontSayIt", 0.0, 1.5))
CIRCLE = {("rock", "scissors"): 200.0, ("scissors", "paper"): 200.0, ("paper", "rock"): 200.0}
EQUALS = {"rock": 0.0, "scissors": 0.0, "paper": 0.0}


def elo_of(name: str, ratings: Ratings) -> Rating:
    return next(player for player in ratings.players if player.name == name)


def test_planted_strengths_are_within_their_intervals() -> None:
    """As often as 95% intervals should hold them, with draws, several games and an advantage of playing first."""
    held, advantages, runs = 0, 0, 40
    for seed in range(runs):
        ratings = Ratings(list(planted(STRENGTHS, 15, seed, GAMES)), "random")
        for player in ratings.players:
            held += player.low <= STRENGTHS[player.name] <= player.high
        for game, advantage, _ in GAMES:
            (terms,) = [terms for terms in ratings.games if terms.game == game]
            advantages += terms.first_player.low <= advantage <= terms.first_player.high
    # the anchor always is; of 160 (120) others 152 (114) are to be expected, and 9 fewer in one of a thousand tests
    assert 143 <= held - runs <= 159
    assert 106 <= advantages <= 120


def test_many_games_find_strengths_advantages_and_draws() -> None:
    ratings = Ratings(list(planted(STRENGTHS, 1000, 1, GAMES)), "random")
    assert [player.name for player in ratings.players] == ["d", "c", "b", "random", "e"]
    for player in ratings.players:
        assert player.elo == pytest.approx(STRENGTHS[player.name], abs=15)
    for terms, (game, advantage, inclination) in zip(ratings.games, sorted(GAMES), strict=True):
        assert terms.game == game
        assert terms.first_player.elo == pytest.approx(advantage, abs=15)
        assert terms.draws == pytest.approx(math.exp(inclination) / (math.exp(inclination) + 2), abs=0.01)


def test_four_hundred_points_are_odds_of_ten_to_one() -> None:
    played = [
        GameResult(*seats, "KuhnPoker", outcome, (0, number))
        for number, (seats, outcome) in enumerate(
            [(("a", "b"), "win")] * 1000
            + [(("a", "b"), "loss")] * 100
            + [(("b", "a"), "loss")] * 1000
            + [(("b", "a"), "win")] * 100
        )
    ]
    ratings = Ratings(played, "b")  # type: ignore[arg-type]
    assert ratings.players[0].elo == pytest.approx(400, abs=1.0)
    # the information of 2200 games with chances of 10/11 and 1/11
    half = 1.959964 * 400 / math.log(10) / math.sqrt(2200 * 10 / 121)
    assert ratings.players[0].high - 400 == pytest.approx(half, rel=0.02)


@pytest.mark.parametrize("n", [1, 8, 256])
def test_who_won_everything_has_a_finite_rating_and_a_wide_interval(n: int) -> None:
    ratings = Ratings([*planted({"random": 0, "best": 20000}, n)], "random")
    best = ratings.players[0]
    assert (best.name, best.points, best.games) == ("best", 2 * n, 2 * n)
    assert 100 < best.elo < 2000
    assert best.high - best.low > 800


def test_more_wins_of_all_are_more_points() -> None:
    values = [Ratings([*planted({"a": 0, "b": 20000}, n)], "a").players[0].elo for n in (1, 8, 64, 512)]
    assert values == sorted(values)


def test_games_of_one_chance_count_as_what_they_are() -> None:
    """Ten games that copy one another say no more than one does."""
    alone = [*planted({"a": 0.0, "b": 30.0}, 100)]
    copied = [result for result in alone for _ in range(10)]
    apart = [result._replace(cluster=(1, number)) for number, result in enumerate(copied)]
    width = [
        (estimate.high - estimate.low)
        for estimate in (elo_of("b", Ratings(games, "a")) for games in (alone, copied, apart))
    ]
    assert width[1] == pytest.approx(width[0], rel=0.1)
    assert width[2] == pytest.approx(width[0] / math.sqrt(10), rel=0.1)


def test_without_an_anchor_the_mean_is_zero() -> None:
    games = list(planted(STRENGTHS, 30))
    free, anchored = Ratings(games), Ratings(games, "c")
    assert sum(player.elo for player in free.players) == pytest.approx(0.0, abs=1e-6)
    assert {player.name: player.elo for player in anchored.players}["c"] == 0.0
    assert elo_of("d", free).elo - elo_of("e", free).elo == pytest.approx(
        elo_of("d", anchored).elo - elo_of("e", anchored).elo
    )


def test_the_order_of_games_is_nothing() -> None:
    games = list(planted(STRENGTHS, 10, games=GAMES))
    shuffled = random.Random(0).sample(games, len(games))
    for one, other in zip(Ratings(games).players, Ratings(shuffled).players, strict=True):
        assert one.name == other.name
        assert one.elo == pytest.approx(other.elo, abs=1e-9)
        assert one.low == pytest.approx(other.low, abs=1e-9)


def test_games_against_oneself_tell_of_the_role_only() -> None:
    alone = [GameResult("a", "a", "Nim", "win" if number % 10 else "loss", (0, number)) for number in range(200)]
    ratings = Ratings(alone)
    assert ratings.players[0].elo == 0.0
    assert ratings.players[0].games == 0
    assert ratings.games[0].first_player.elo == pytest.approx(400 * math.log10(9), rel=0.02)


def test_who_never_met_is_compared_with_wide_intervals() -> None:
    groups = ({"a": 0.0, "b": 0.0, "c": 0.0}, {"d": 0.0, "e": 0.0, "f": 0.0})
    games = [result for group in groups for result in planted(group, 100)]
    ratings = Ratings(games, "a")
    near, far = (elo_of(name, ratings) for name in ("b", "d"))
    assert near.high - near.low < 200 and far.high - far.low > 2000
    assert transitivity(games, ratings).degrees == 2, "one for each group of three"


def test_bad_input_is_told() -> None:
    with pytest.raises(ValueError, match="no games"):
        Ratings([])


def test_the_head_to_head_is_counted_from_both_sides() -> None:
    games = [
        GameResult("a", "b", "Nim", "win", (0, 0)),
        GameResult("b", "a", "Nim", "win", (0, 1)),
        GameResult("b", "a", "Nim", "loss", (0, 2)),
        GameResult("a", "b", "Nim", "draw", (0, 3)),
        GameResult("a", "a", "Nim", "win", (0, 4)),
    ]
    pairs = head_to_head(games)
    assert [*pairs] == [("a", "b"), ("b", "a")]
    mine, theirs = pairs.values()
    assert (mine.wins, mine.draws, mine.losses, mine.score) == (2, 1, 1, 0.625)
    assert (theirs.wins, theirs.draws, theirs.losses, theirs.score) == (1, 1, 2, 0.375)
    assert (mine.ahead, theirs.ahead) == (0, 0), "two to one is no decision"


def test_rock_paper_scissors_is_shown() -> None:
    games = list(planted(EQUALS, 100, bonus=CIRCLE))
    ratings = Ratings(games)
    found = transitivity(games, ratings)
    assert found.cycles == (("paper", "rock", "scissors"),)
    assert (found.decided, found.triples, found.degrees) == (1, 1, 1)
    assert found.unexplained is not None and found.unexplained > 0.9
    assert found.p_value is not None and found.p_value < 1e-6
    assert max(abs(player.elo) for player in ratings.players) < 60


def test_a_cycle_among_others_is_found() -> None:
    strengths = {**EQUALS, "best": 600.0, "worst": -600.0}
    circles, decided, triples = cycles(head_to_head(planted(strengths, 100, bonus=CIRCLE)))
    assert circles == (("paper", "rock", "scissors"),)
    assert (decided, triples) == (10, 10)


def test_where_strength_decides_hardly_anything_is_unexplained() -> None:
    """Nor is more than chance where one wins everything, or where who is first wins nearly always."""
    for strengths, games in (
        (STRENGTHS, GAMES),
        ({"a": 0.0, "b": 5000.0, "c": 10000.0}, GAMES),
        (STRENGTHS, (("Nim", 900.0, -20.0),)),
    ):
        played = list(planted(strengths, 100, 2, games))
        found = transitivity(played, Ratings(played))
        assert found.cycles == ()
        assert found.unexplained is not None and found.unexplained < 0.1
        assert found.p_value is not None and found.p_value > 0.01


def test_equals_make_no_cycles() -> None:
    names = dict.fromkeys("abcdefgh", 0.0)
    played = list(planted(names, 60, 3))
    found = transitivity(played, Ratings(played))
    assert found.triples == 56
    assert found.decided <= 2
    assert found.p_value is not None and found.p_value > 0.01
    assert found.unexplained == pytest.approx(found.by_chance, abs=0.4)


def test_two_players_leave_nothing_unexplained() -> None:
    played = list(planted({"a": 0.0, "b": 100.0}, 20))
    found = transitivity(played, Ratings(played))
    assert (found.degrees, found.p_value, found.triples) == (0, None, 0)
