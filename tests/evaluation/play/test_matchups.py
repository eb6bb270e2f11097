"""Plans: every game has its place and its chance, whatever else is planned."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recipe.spiral.evaluation.play.matchups import Chance, GameId, MatchUp, Plan, cross, round_robin
from recipe.spiral.evaluation.play.own_past import own_past_match_ups, steps_of
from recipe.spiral.games import UnknownGame
from tests.evaluation.made import at_random, plan
from tests.made import record

_names = st.lists(st.sampled_from("abcdef"), unique=True, min_size=2)
_games = st.lists(st.sampled_from(["TicTacToe", "KuhnPoker", "Nim"]), unique=True, min_size=1)
_chances = st.sampled_from(["shared", "own"])


@settings(max_examples=25, deadline=None)
@given(_names, _games, st.integers(1, 3), st.integers(1, 3), st.integers(0, 5), _chances)
def test_more_games_and_more_players_change_no_game(
    names: list[str], games: list[str], fewer: int, more: int, seed: int, chance: Chance
) -> None:
    small = Plan(round_robin(names[1:], games[:1], ["random"]), fewer, seed, chance)
    large = Plan(round_robin(names, games, ["perfect", "random"]), fewer + more, seed, chance)
    assert {(game.id, game.key) for game in small} < {(game.id, game.key) for game in large}
    assert len(list(large)) == len(large) == len({game.id for game in large})


@settings(max_examples=25, deadline=None)
@given(_names, _games, st.booleans())
def test_in_a_round_robin_everybody_meets_everybody_once(names: list[str], games: list[str], itself: bool) -> None:
    match_ups = round_robin(names, games, ["random", "a"], itself)
    met = [(frozenset((one.policy, one.opponent)), one.game) for one in match_ups]
    everybody = {*names, "random", "a"}
    pairs = {frozenset((one, other)) for one in everybody for other in everybody if itself or one != other}
    assert len(set(met)) == len(met)
    assert set(met) == {(pair, game) for pair in pairs for game in games}


def test_both_roles_are_played_as_often() -> None:
    games = list(plan(3, ("a", "b", "Nim")))
    assert [game.role for game in games] == [0, 0, 0, 1, 1, 1]
    assert {game.players for game in games if game.role == 0} == {("a", "b")}
    assert {game.players for game in games if game.role == 1} == {("b", "a")}


def test_chance_is_shared_by_policies_against_the_same_opponent_and_by_no_other_games() -> None:
    shared = plan(5, ("a", "random", "Nim"), ("b", "random", "Nim"), ("a", "b", "Nim"), ("a", "random", "Snake"))
    keys = {(game.id.policy, *game.id[1:]): game.key for game in shared}
    for (policy, opponent, game, role, place), key in keys.items():
        if policy == "a" and (opponent, game) == ("random", "Nim"):
            assert keys["b", opponent, game, role, place] == key
    assert len(set(keys.values())) == len(keys) - 10
    own = Plan(shared.match_ups, 5, chance="own")
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


def test_aliases_are_the_games_that_they_name() -> None:
    assert [game.key for game in plan(1, ("a", "b", "TicTacToe-v0"))] == [
        game.key for game in plan(1, ("a", "b", "TicTacToe"))
    ]
    with pytest.raises(ValueError, match="a against b in TicTacToe is planned twice"):
        plan(1, ("a", "b", "TicTacToe-v0"), ("a", "b", "TicTacToe"))


@pytest.mark.parametrize("n", [0, -1, 1.5, True])
def test_a_bad_number_of_games_is_refused(n: int) -> None:
    with pytest.raises(ValueError, match="games_per_role"):
        plan(n)


@pytest.mark.parametrize("name", ["", " a", "a\nb", "\x1b[31m"])
def test_names_that_would_break_tables_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no name of a policy"):
        MatchUp(name, "random", "Nim")


def test_other_mistakes_are_told() -> None:
    with pytest.raises(UnknownGame, match="Chess"):
        plan(1, ("a", "b", "Chess"))
    with pytest.raises(ValueError, match="a is named twice"):
        round_robin(["a", "b", "a"], ["Nim"])
    with pytest.raises(ValueError, match="chance='none'"):
        plan(1, chance="none")  # type: ignore[arg-type]


def test_a_cross_is_everybody_against_every_opponent() -> None:
    assert cross(["a", "b"], ["random"], ["Nim", "Snake"]) == (
        MatchUp("a", "random", "Nim"),
        MatchUp("a", "random", "Snake"),
        MatchUp("b", "random", "Nim"),
        MatchUp("b", "random", "Snake"),
    )


def test_the_own_past_is_so_many_steps_before() -> None:
    steps = steps_of(["global_step_8", "step_000040", "step_000024", "random", "step_000016", "step_one"])
    assert steps == {"global_step_8": 8, "step_000040": 40, "step_000024": 24, "step_000016": 16}
    assert own_past_match_ups(steps, ["Nim"]) == (
        MatchUp("step_000024", "global_step_8", "Nim"),
        MatchUp("step_000040", "step_000024", "Nim"),
    )
    with pytest.raises(ValueError, match=r"lag=5: .*8, 16, 24, 40"):
        own_past_match_ups(steps, ["Nim"], 5)
