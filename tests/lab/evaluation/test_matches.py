"""Plans: every game has its place and its randomness, whatever else is planned. The folder: what a kill leaves."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.evaluation.evaluation_folder import GAMES, EvaluationFolder, read_games
from recipe.spiral.lab.evaluation.matches import GameId, games_of
from recipe.spiral.lab.evaluation.matches import plan as planned
from recipe.spiral.lab.evaluation.policies import Policy
from recipe.spiral.lab.evaluation.settings import Randomness
from recipe.spiral.match import Rules
from recipe.spiral.players.seeds import GameKey
from tests.lab.evaluation.made import at_random, game_of, key_of, manifest, plan, settings
from tests.made import record


def made(tmp_path: Path, names: str, opponents: str, n: int, *overrides: str) -> dict[GameId, GameKey]:
    """Of random players with these letters as names: their games, with their keys."""
    policies, others = ([Policy(name, "random", {}) for name in letters] for letters in (names, opponents))
    chosen = settings(tmp_path, *overrides)
    games = games_of(planned(policies, others, chosen)[0], n)
    assert len({*games}) == len(games)
    return {game: game.key(chosen.seed, chosen.randomness) for game in games}


@pytest.mark.parametrize("randomness", Randomness)
def test_more_games_and_more_players_change_no_game(tmp_path: Path, randomness: Randomness) -> None:
    how = (f"randomness={randomness}", "match_ups=[cross,round_robin]")
    small = made(tmp_path, "bd", "r", 2, *how, "games=[TicTacToe]")
    large = made(tmp_path, "abcd", "pr", 5, *how, "games=[Nim,TicTacToe]")
    assert small.items() < large.items()


def test_both_roles_are_played_as_often() -> None:
    games = plan(3, ("a", "b", "Nim"))
    assert [game.role for game in games] == [0, 0, 0, 1, 1, 1]
    assert [game.players for game in games[::3]] == [("a", "b"), ("b", "a")]


def test_randomness_is_shared_by_policies_against_the_same_opponent_and_by_no_other_games() -> None:
    match_ups = (("a", "random", "Nim"), ("b", "random", "Nim"), ("a", "b", "Nim"), ("a", "random", "Snake"))
    games = plan(5, *match_ups)
    keys, own = ({game: key_of(game, 0, how) for game in games} for how in (Randomness.shared, Randomness.own))
    for game in plan(5, match_ups[0]):
        assert keys[game] == keys[game._replace(policy="b")]
    assert len({*keys.values()}) == len(keys) - 10
    assert len({*own.values()}) == len(own)
    assert not {key_of(game, 1) for game in games} & {*keys.values()}


def test_a_record_says_which_game_it_is_also_of_a_policy_with_itself() -> None:
    for game in plan(2, ("a", "b", "TicTacToe"), ("b", "a", "KuhnPoker"), ("a", "a", "Nim")):
        assert GameId.of(at_random(game)) == game
    with pytest.raises(ValueError):
        GameId.of(record(0))


MINE = manifest("a", "random", sampling={"top_p": 1.0}, max_response_length=None)
GAME, *_ = plan()


def test_what_a_kill_cut_off_is_dropped_and_the_rest_is_kept(tmp_path: Path) -> None:
    records = [*map(at_random, plan(3)), replace(game_of(GAME), reason="\u2028\x00\r\n")]
    folder = EvaluationFolder(tmp_path, MINE)
    for played in records:
        folder.add(played)
    whole = (tmp_path / GAMES).read_bytes()
    for cut in (1, 60):
        (tmp_path / GAMES).write_bytes(whole + whole[:-cut][-100_000:].splitlines()[-1][:-cut])
        assert list(read_games(tmp_path)) == records, "whoever reads meanwhile does not see it"
        EvaluationFolder(tmp_path, MINE)
        assert (tmp_path / GAMES).read_bytes() == whole
    for played in records[:-1]:
        assert differences(played, replay(played, Rules())) == []


@pytest.mark.parametrize("change", [(b'"rewards":[1.0', b'"rewards":[0.0'), (b'"game"', b'"gam"')])
def test_a_line_that_was_changed_is_named(tmp_path: Path, change: tuple[bytes, bytes]) -> None:
    for _ in range(2):
        EvaluationFolder(tmp_path, MINE).add(game_of(GAME))
    first, second = (tmp_path / GAMES).read_bytes().splitlines(keepends=True)
    (tmp_path / GAMES).write_bytes(first + second.replace(*change))
    with pytest.raises(ValueError, match=r"games\.jsonl: line 2 "):
        list(read_games(tmp_path))
