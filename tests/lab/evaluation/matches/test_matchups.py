"""Plans: every game has its place and its randomness, whatever else is planned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.lab.evaluation.matches.matchups import GameId, MatchUp, Plan, Randomness, cross, round_robin
from tests.lab.evaluation.made import at_random, plan
from tests.made import record

_names = st.lists(st.sampled_from("abcdef"), unique=True, min_size=2)
_games = st.lists(st.sampled_from(["TicTacToe", "KuhnPoker", "Nim"]), unique=True, min_size=1)
_randomness = st.sampled_from(["shared", "own"])


@settings(max_examples=25, deadline=None)
@given(_names, _games, st.integers(1, 3), st.integers(1, 3), st.integers(0, 5), _randomness)
def test_more_games_and_more_players_change_no_game(
    names: list[str], games: list[str], fewer: int, more: int, seed: int, randomness: Randomness
) -> None:
    small = Plan(round_robin(names[1:], games[:1], ["random"]), fewer, seed, randomness)
    large = Plan(round_robin(names, games, ["perfect", "random"]), fewer + more, seed, randomness)
    assert {(game.id, game.key) for game in small} < {(game.id, game.key) for game in large}
    assert len(list(large)) == len(large) == len({game.id for game in large})


@settings(max_examples=25, deadline=None)
@given(_names, _games)
def test_in_a_round_robin_everybody_plays_everybody_else_once(names: list[str], games: list[str]) -> None:
    match_ups = round_robin(names, games, ["random", "a"])
    met = [(frozenset((one.policy, one.opponent)), one.game) for one in match_ups]
    everybody = {*names, "random", "a"}
    pairs = {frozenset((one, other)) for one in everybody for other in everybody if one != other}
    assert len(set(met)) == len(met)
    assert set(met) == {(pair, game) for pair in pairs for game in games}


def test_both_roles_are_played_as_often() -> None:
    games = list(plan(3, ("a", "b", "Nim")))
    assert [game.id.role for game in games] == [0, 0, 0, 1, 1, 1]
    assert {game.players for game in games if game.id.role == 0} == {("a", "b")}
    assert {game.players for game in games if game.id.role == 1} == {("b", "a")}


def test_randomness_is_shared_by_policies_against_the_same_opponent_and_by_no_other_games() -> None:
    shared = plan(5, ("a", "random", "Nim"), ("b", "random", "Nim"), ("a", "b", "Nim"), ("a", "random", "Snake"))
    keys = {(game.id.policy, *game.id[1:]): game.key for game in shared}
    for (policy, opponent, game, role, place), key in keys.items():
        if policy == "a" and (opponent, game) == ("random", "Nim"):
            assert keys["b", opponent, game, role, place] == key
    assert len(set(keys.values())) == len(keys) - 10
    own = Plan(shared.match_ups, 5, randomness="own")
    assert len({game.key for game in own}) == len(own)
    assert not {game.key for game in own} & set(keys.values())


def test_a_seed_changes_every_game() -> None:
    assert not {game.key for game in plan(5, seed=0)} & {game.key for game in plan(5, seed=1)}


def test_names_cannot_run_into_each_other() -> None:
    games = plan(1, ("p", "a/Nim", "Nim"), ("p", "a", "Nim"), ("p", 'a","Nim', "Nim"), ("p", "aNim", "Nim"))
    assert len({game.key for game in games}) == len(games)


def test_a_policy_can_play_itself() -> None:
    """It is counted in one role at a time, so that its games are as independent as any."""
    games = list(plan(2, ("a", "a", "TicTacToe")))
    assert len({game.key for game in games}) == len(games) == 4
    for game in games:
        assert GameId.of(at_random(game)) == game.id


def test_a_record_says_which_game_it_is() -> None:
    for game in plan(2, ("a", "b", "TicTacToe"), ("b", "a", "KuhnPoker")):
        assert GameId.of(at_random(game)) == game.id
    with pytest.raises(ValueError, match="trainable"):
        GameId.of(record(0))


def test_a_cross_is_everybody_against_every_opponent() -> None:
    assert cross(["a", "b"], ["random"], ["Nim", "Snake"]) == (
        MatchUp("a", "random", "Nim"),
        MatchUp("a", "random", "Snake"),
        MatchUp("b", "random", "Nim"),
        MatchUp("b", "random", "Snake"),
    )
