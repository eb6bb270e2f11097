"""Plans: every game has its place and its randomness, whatever else is planned. The folder: what a kill leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.evaluation.evaluation_folder import GAMES, EvaluationFolder, Manifest, read_games
from recipe.spiral.lab.evaluation.matches import GameId, Plan
from recipe.spiral.lab.evaluation.matches import plan as planned
from recipe.spiral.lab.evaluation.policies import Policy
from recipe.spiral.lab.evaluation.settings import Randomness
from recipe.spiral.match import Rules
from tests.lab.evaluation.made import at_random, game_of, manifest, plan, settings
from tests.made import record


def made(tmp_path: Path, names: str, opponents: str, n: int, *overrides: str) -> Plan:
    """Of random players with these letters as names."""
    policies, others = ([Policy(name, "random", {}) for name in letters] for letters in (names, opponents))
    return planned(policies, others, settings(tmp_path, f"games_per_role={n}", *overrides))


@pytest.mark.parametrize("randomness", Randomness)
def test_more_games_and_more_players_change_no_game(tmp_path: Path, randomness: Randomness) -> None:
    how = (f"randomness={randomness}", "match_ups=[cross,round_robin]")
    small = made(tmp_path, "bd", "r", 2, *how, "games=[TicTacToe]")
    large = made(tmp_path, "abcd", "pr", 5, *how, "games=[Nim,TicTacToe]")
    assert {(game, small.key(game)) for game in small} < {(game, large.key(game)) for game in large}
    assert len({*large}) == len([*large]) == len(large)
    assert all(game in large for game in small) and not all(game in small for game in large)


def test_both_roles_are_played_as_often() -> None:
    games = list(plan(3, ("a", "b", "Nim")))
    assert [game.role for game in games] == [0, 0, 0, 1, 1, 1]
    assert [game.players for game in games[::3]] == [("a", "b"), ("b", "a")]


def test_randomness_is_shared_by_policies_against_the_same_opponent_and_by_no_other_games() -> None:
    match_ups = (("a", "random", "Nim"), ("b", "random", "Nim"), ("a", "b", "Nim"), ("a", "random", "Snake"))
    shared, own = plan(5, *match_ups), plan(5, *match_ups, randomness=Randomness.own)
    keys = {game: shared.key(game) for game in shared}
    for game in plan(5, match_ups[0]):
        assert keys[game] == keys[game._replace(policy="b")]
    assert len({*keys.values()}) == len(keys) - 10
    assert len({own.key(game) for game in own}) == len(own)
    other = plan(5, *match_ups, seed=1)
    assert not {other.key(game) for game in other} & {*keys.values()}


def test_a_record_says_which_game_it_is_also_of_a_policy_with_itself() -> None:
    for game in plan(2, ("a", "b", "TicTacToe"), ("b", "a", "KuhnPoker"), ("a", "a", "Nim")):
        assert GameId.of(at_random(game)) == game
    with pytest.raises(ValueError):
        GameId.of(record(0))


MINE = manifest("a", "random", sampling={"top_p": 1.0}, max_response_length=None)
GAME, *_ = plan()


def filled(folder: Path, told: Manifest = MINE) -> Manifest:
    """Add a game, and return what the folder is then."""
    with EvaluationFolder(folder, told) as made:
        made.add(game_of(GAME))
        return made.manifest


def test_what_a_kill_cut_off_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    records = [*map(at_random, plan(3)), replace(game_of(GAME), reason="\u2028\x00\r\n")]
    with EvaluationFolder(tmp_path, MINE) as folder:
        for record in records:
            folder.add(record)
    whole = (tmp_path / GAMES).read_bytes()
    for cut in (1, 60):
        (tmp_path / GAMES).write_bytes(whole + whole[:-cut][-100_000:].splitlines()[-1][:-cut])
        assert list(read_games(tmp_path)) == records, "whoever reads meanwhile does not see it"
        with EvaluationFolder(tmp_path, MINE):
            pass
        assert (tmp_path / GAMES).read_bytes() == whole
    for record in records[:-1]:
        assert differences(record, replay(record, Rules())) == []


@pytest.mark.parametrize("change", [(b'"rewards":[1.0', b'"rewards":[0.0'), (b'"game"', b'"gam"')])
def test_a_line_that_was_changed_is_named(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    filled(tmp_path)
    filled(tmp_path)
    first, second = (tmp_path / GAMES).read_bytes().splitlines(keepends=True)
    (tmp_path / GAMES).write_bytes(first + second.replace(*change))
    with pytest.raises(ValueError, match=r"games\.jsonl: line 2 "):
        list(read_games(tmp_path))
