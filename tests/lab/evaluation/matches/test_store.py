"""The store: a kill costs no game that has ended, damage is told, and other settings are refused."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.lab.audit.replay import differences, replay
from recipe.spiral.lab.evaluation.matches.matchups import Plan, PlannedGame
from recipe.spiral.lab.evaluation.matches.store import FILE, EvaluationStore, Manifest, OtherEvaluation, read_games
from recipe.spiral.match import Rules
from recipe.spiral.storage.disk import InUse
from tests.lab.evaluation.made import at_random, game_of, manifest, plan

PLAN = plan(3)
MANIFEST_OF = manifest("a", "b", "random")


def filled(folder: Path, games: int, of: Plan = PLAN) -> list[PlannedGame]:
    """A folder with the plan's first games; returns these."""
    done = list(of)[:games]
    with EvaluationStore(folder, MANIFEST_OF) as store:
        for game in done:
            store.append(game_of(game))
    return done


def test_what_was_played_is_finished_and_the_rest_is_missing(tmp_path: Path) -> None:
    done = filled(tmp_path, 5)
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        assert store.finished(PLAN) == done
        assert store.missing(PLAN) == list(PLAN)[5:]
        assert list(store.records()) == [game_of(game) for game in done]
        for game in store.missing(PLAN):
            store.append(game_of(game))
        assert store.missing(PLAN) == []
        assert len(store.finished(PLAN)) == len(PLAN)
        assert [game.id.place for game in store.missing(plan(4))] == [3] * 4


def test_a_killed_process_leaves_its_games_and_no_lock(tmp_path: Path) -> None:
    script = (
        "import json, os, sys, signal\n"
        "from recipe.spiral.lab.evaluation.matches.store import Manifest\n"
        "from recipe.spiral.lab.evaluation.matches.store import EvaluationStore\n"
        "from recipe.spiral.players.records import GameRecord\n"
        "policies = {name: {'kind': 'random'} for name in ('a', 'b', 'random')}\n"
        "store = EvaluationStore(sys.argv[1], Manifest(0, 'shared', policies, {}))\n"
        "for line in sys.stdin: store.append(GameRecord.from_dict(json.loads(line)))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    games = [game_of(game) for game in list(PLAN)[:4]]
    root = Path(__file__).resolve().parents[4]
    command = [sys.executable, "-c", script, str(tmp_path)]
    lines = "".join(f"{game.to_json()}\n" for game in games)
    done = subprocess.run(command, input=lines, text=True, cwd=root, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert list(read_games(tmp_path)) == games, "before anybody has opened it for writing"
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        assert len(store.finished(PLAN)) == 4


def test_no_game_is_stored_twice(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with EvaluationStore(tmp_path, MANIFEST_OF) as store, pytest.raises(ValueError, match="already"):
        store.append(game_of(next(iter(PLAN)), "loss"))
    assert [record.result(0) for record in read_games(tmp_path)] == ["win", "win"]


def test_void_games_are_stored_and_tried_again_with_other_randomness(tmp_path: Path) -> None:
    game = next(iter(PLAN))
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        for retry in range(2):
            again = store.missing(PLAN)[0]
            assert again.key == replace(game.key, retry=retry)
            store.append(game_of(again, "draw", discarded="void", reason="no answer"))
        assert len(store.finished(PLAN)) == 0
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        again = store.missing(PLAN)[0]
        assert again.key.retry == 2
        store.append(game_of(again))
        assert store.missing(PLAN)[0] == list(PLAN)[1]
        assert [record.discarded for record in store.records()] == ["void", "void", None]


def test_games_of_other_plans_are_kept_apart(tmp_path: Path) -> None:
    filled(tmp_path, 12)
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        assert len(list(store.records(plan(1)))) == 4
        assert len(list(store.records())) == 12


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    first = manifest("a", "random", rules={"illegal_rewards": (-1.5, 0.5), "turn_cap": None}, sampling={"top_p": 1.0})
    EvaluationStore(tmp_path, manifest("a", seed=4)).close()  # which has nothing, and does not count
    with EvaluationStore(tmp_path, first) as store:
        store.append(game_of(next(iter(plan(1, ("a", "random", "Nim"))))))
    EvaluationStore(tmp_path, first).close()
    other = Manifest(
        1,
        "own",
        {"a": {"kind": "model", "path": "x"}, "random": {"kind": "random"}},
        {"rules": {"illegal_rewards": (-1, 1)}, "sampling": {"top_p": 0.9, "top_k": 5}},
    )
    with pytest.raises(OtherEvaluation) as told:
        EvaluationStore(tmp_path, other)
    assert str(told.value).splitlines()[1:] == [
        '  policies.a.kind: "random" there, "model" now',
        '  policies.a.path: not set there, "x" now',
        '  randomness: "shared" there, "own" now',
        "  seed: 0 there, 1 now",
        "  settings.rules.illegal_rewards: [-1.5, 0.5] there, [-1, 1] now",
        "  settings.rules.turn_cap: null there, not set now",
        "  settings.sampling.top_k: not set there, 5 now",
        "  settings.sampling.top_p: 1.0 there, 0.9 now",
    ]
    with EvaluationStore(tmp_path, first) as store:
        assert store.manifest == first


def test_new_policies_may_join(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    with EvaluationStore(tmp_path, manifest("c", "random")) as store:
        assert len(store.finished(PLAN)) == 4
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        assert set(store.manifest.policies) == {"a", "b", "c", "random"}


def test_a_failed_start_lets_go_of_the_folder(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with pytest.raises(OtherEvaluation):
        EvaluationStore(tmp_path, manifest("a", seed=4))
    EvaluationStore(tmp_path, MANIFEST_OF).close()


def test_one_process_writes_and_others_read(tmp_path: Path) -> None:
    game = next(iter(PLAN))
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        with pytest.raises(InUse, match="another process"):
            EvaluationStore(tmp_path, MANIFEST_OF)
        store.append(game_of(game))
        assert list(read_games(tmp_path)) == [game_of(game)]
    EvaluationStore(tmp_path, MANIFEST_OF).close()


def test_texts_of_any_kind_are_stored(tmp_path: Path) -> None:
    game = next(iter(PLAN))
    record = replace(game_of(game), reason="\ud800 half a pair\u2028\x00\r\n")
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        store.append(record)
        assert list(store.records()) == [record]


def test_games_can_be_replayed(tmp_path: Path) -> None:
    with EvaluationStore(tmp_path, MANIFEST_OF) as store:
        for game in store.missing(PLAN):
            store.append(at_random(game))
    for record in read_games(tmp_path):
        assert differences(record, replay(record, Rules())) == []


def test_reading_where_nothing_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_games(tmp_path / "none"))
    assert not (tmp_path / "none").exists()


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the command sqlite3 is not installed")
def test_people_read_games_with_the_command_of_the_docs(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    command = ["sqlite3", "-readonly", str(tmp_path / FILE), "SELECT value FROM games"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [json.loads(line)["players"] for line in lines] == [["a", "random"]] * 2
