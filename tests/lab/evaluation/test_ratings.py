"""Ratings find strengths that were planted; counts by hand, and intervals by the book."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

import pytest

from recipe.spiral.lab.evaluation.matches import GameId
from recipe.spiral.lab.evaluation.ratings import ALL, Row, head_to_head, rate
from recipe.spiral.lab.evaluation.tabulation import Tabulation, mean, per_turn
from recipe.spiral.lab.evaluation.tabulation import rate as share
from recipe.spiral.players.records import GameRecord
from recipe.spiral.training.metrics import wilson
from tests.lab.evaluation.made import game_of, losing, plan, planted
from tests.made import turn

STRENGTHS = {"random": 0.0, "b": 50.0, "c": 120.0, "d": 300.0, "e": -200.0}
#: (id, first-player advantage in Elo, inclination to draws)
GAMES = (("TicTacToe", 60.0, -0.5), ("KuhnPoker", -30.0, -20.0), ("DontSayIt", 0.0, 1.5))


def elo_of(name: str, ratings: Row) -> float:
    return float(next(player["elo"] for player in ratings["players"] if player["name"] == name))


def test_planted_strengths_are_within_their_intervals() -> None:
    """As often as 95% intervals should hold them, with draws, several games and an advantage of playing first."""
    held, advantages, runs = 0, 0, 40
    for seed in range(runs):
        ratings = rate(ALL, planted(STRENGTHS, 15, seed, GAMES), "random")
        for player in ratings["players"]:
            held += player["low"] <= STRENGTHS[player["name"]] <= player["high"]
        for game, advantage, _ in GAMES:
            (terms,) = [terms for terms in ratings["games"] if terms["game"] == game]
            advantages += terms["first_player"]["low"] <= advantage <= terms["first_player"]["high"]
    # the anchor always is; of 160 (120) others 152 (114) are to be expected, and 9 fewer in one of a thousand tests
    assert 143 <= held - runs <= 159
    assert 106 <= advantages <= 120


def test_many_games_find_strengths_advantages_and_draws() -> None:
    ratings = rate(ALL, planted(STRENGTHS, 1000, 1, GAMES), "random")
    assert [player["name"] for player in ratings["players"]] == ["d", "c", "b", "random", "e"]
    for player in ratings["players"]:
        assert player["elo"] == pytest.approx(STRENGTHS[player["name"]], abs=15)
    for terms, (game, advantage, inclination) in zip(ratings["games"], sorted(GAMES), strict=True):
        assert terms["game"] == game
        assert terms["first_player"]["elo"] == pytest.approx(advantage, abs=15)
        assert terms["draws"] == pytest.approx(math.exp(inclination) / (math.exp(inclination) + 2), abs=0.01)


def test_four_hundred_points_are_odds_of_ten_to_one() -> None:
    ratings = rate("Nim", {("a", "b", "Nim"): (1000, 0, 100), ("b", "a", "Nim"): (100, 0, 1000)}, "b")
    assert ratings["players"][0]["elo"] == pytest.approx(400, abs=1.0)
    # the information of 2200 games with chances of 10/11 and 1/11
    half = 1.959964 * 400 / math.log(10) / math.sqrt(2200 * 10 / 121)
    assert ratings["players"][0]["high"] - 400 == pytest.approx(half, rel=0.02)


def test_without_an_anchor_the_mean_is_zero() -> None:
    games = planted(STRENGTHS, 30)
    free, anchored = rate(ALL, games), rate(ALL, games, "c")
    assert rate(ALL, games, "nobody") == free
    assert sum(player["elo"] for player in free["players"]) == pytest.approx(0.0, abs=1e-6)
    assert elo_of("c", anchored) == 0.0
    assert elo_of("d", free) - elo_of("e", free) == pytest.approx(elo_of("d", anchored) - elo_of("e", anchored))


def test_the_head_to_head_is_counted_from_both_sides() -> None:
    pairs = head_to_head({("a", "b", "Nim"): (1, 1, 0), ("b", "a", "Nim"): (1, 0, 1), ("a", "a", "Nim"): (1, 0, 0)})
    assert [(pair["name"], pair["other"]) for pair in pairs] == [("a", "b"), ("b", "a")]
    assert [(pair["wins"], pair["draws"], pair["losses"], pair["score"]) for pair in pairs] == [
        (2, 1, 1, 0.625),
        (1, 1, 2, 0.375),
    ]


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
    results = {result["role"]: result for result in tabulate(games()).results()}
    first, second, both = results[0], results[1], results[None]
    assert (first["win"], first["draw"], first["loss"]) == (share(1, 3), share(1, 3), share(1, 3))
    assert (first["invalid"], first["opponent_invalid"], first["turn_cap"]) == (share(1, 3), share(0, 3), share(1, 3))
    assert first["reward"]["value"] == pytest.approx((1 + 0 - 1.5) / 3)
    assert first["reward"]["error"] == pytest.approx(math.sqrt((49 / 36 + 1 / 36 + 64 / 36) / 2 / 3))
    assert first["turns"]["value"] == pytest.approx(4 / 3)
    assert first["response_tokens"] == per_turn(2 + 4 + 6 + 2, 4)
    assert first["truncated"] == per_turn(1, 4)
    assert (second["win"], second["loss"], second["invalid"]) == (share(1, 2), share(1, 2), share(0, 2))
    assert (second["opponent_invalid"], second["games"], second["void"]) == (share(1, 2), 2, 1)
    assert second["turns"] == {"value": 0.5, "error": 0.5, "of": 2}, (
        "it never moved in the game that the opponent lost at once"
    )
    assert (both["games"], both["void"], both["win"], both["invalid"]) == (5, 1, share(2, 5), share(1, 5))


def test_outcomes_are_player_0s() -> None:
    first, second = ("a", "random", "TicTacToe"), ("random", "a", "TicTacToe")
    assert tabulate(games()).outcomes() == {first: (1, 1, 1), second: (1, 0, 1)}


def test_a_game_that_a_prompt_ended_is_lost_for_both_and_moves_no_rating() -> None:
    ended = replace(game_of(next(iter(plan(1)))), termination="prompt_too_long", rewards=(-1.0, -1.0))
    table = tabulate([ended])
    result = table.results()[0]
    assert (result["prompt_too_long"], result["loss"], result["draw"]) == (share(1, 1), share(1, 1), share(0, 1))
    assert table.outcomes() == {("a", "random", "TicTacToe"): (0, 1, 0)}


def test_void_games_alone_are_no_rate_and_one_game_has_no_error() -> None:
    void = tabulate([game_of(next(iter(plan(1))), discarded="void")])
    result = void.results()[0]
    assert (result["games"], result["void"], void.outcomes()) == (0, 1, {})
    assert (
        result["win"]["value"]
        is result["win"]["low"]
        is result["reward"]["value"]
        is result["truncated"]["value"]
        is None
    )
    assert tabulate([game_of(next(iter(plan(1))))]).results()[0]["reward"] == mean(Counter([1.0]))
