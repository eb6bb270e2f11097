"""The store: a kill costs a game at most, damage is told, and other settings are refused."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from recipe.spiral.audit.replay import differences, replay
from recipe.spiral.evaluation.play.lines import CorruptGames
from recipe.spiral.evaluation.play.manifest import MANIFEST, Manifest, OtherEvaluation
from recipe.spiral.evaluation.play.matchups import Plan, PlannedGame
from recipe.spiral.evaluation.play.store import GAMES, SET_ASIDE, GameStore, InUse, read_games
from recipe.spiral.match import Rules
from recipe.spiral.play.records import GameRecord
from recipe.spiral.storage.checksums import seal
from recipe.spiral.storage.disk import DiskFull
from tests.evaluation.made import at_random, game_of, losing, manifest, plan

PLAN = plan(3)
MANIFEST_OF = manifest("a", "b", "random")


def filled(folder: Path, games: int, of: Plan = PLAN) -> list[PlannedGame]:
    """A folder with the plan's first games; returns these."""
    done = list(of)[:games]
    with GameStore(folder, MANIFEST_OF) as store:
        for game in done:
            store.append(game_of(game))
    return done


def test_what_was_played_is_done_and_the_rest_is_missing(tmp_path: Path) -> None:
    done = filled(tmp_path, 5)
    with GameStore(tmp_path, MANIFEST_OF) as store:
        assert store.done(PLAN) == done
        assert store.missing(PLAN) == list(PLAN)[5:]
        assert list(store.records()) == [game_of(game) for game in done]
        for game in store.missing(PLAN):
            store.append(game_of(game))
        assert store.missing(PLAN) == []
        assert len(store) == len(PLAN)
        assert [game.id.place for game in store.missing(plan(4))] == [3] * 4


def test_a_kill_at_any_byte_of_the_last_line_costs_that_game_only(tmp_path: Path) -> None:
    file = tmp_path / GAMES
    filled(tmp_path, 3)
    before = file.stat().st_size
    filled_again = list(PLAN)[3]
    short = replace(game_of(filled_again), turns=[], reason='quote " and \\ and ü')
    with GameStore(tmp_path, MANIFEST_OF) as store:
        store.append(short)
    whole = file.read_bytes()
    for end in range(before, len(whole)):
        file.write_bytes(whole[:end])
        assert len(list(read_games(tmp_path))) == 3, "while somebody else is writing"
        with GameStore(tmp_path, MANIFEST_OF) as store:
            assert store.torn == (end > before)
            assert len(store) == 3
            assert store.missing(PLAN)[0] == filled_again
        assert file.read_bytes() == whole[:before]
    file.write_bytes(whole[:-1])
    with GameStore(tmp_path, MANIFEST_OF) as store:
        store.append(short)
    assert file.read_bytes() == whole


def test_a_killed_process_leaves_its_games_and_no_lock(tmp_path: Path) -> None:
    script = (
        "import os, sys, signal\n"
        "from recipe.spiral.evaluation.play.manifest import Manifest\n"
        "from recipe.spiral.evaluation.play.store import GameStore\n"
        "from recipe.spiral.play.records import GameRecord\n"
        "store = GameStore(sys.argv[1], Manifest.read(sys.argv[1]))\n"
        "for line in sys.stdin: store.append(GameRecord.from_json(line))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    filled(tmp_path, 0)
    games = "".join(f"{game_of(game).to_json()}\n" for game in list(PLAN)[:4])
    root = Path(__file__).resolve().parents[3]
    command = [sys.executable, "-c", script, str(tmp_path)]
    done = subprocess.run(command, input=games, text=True, cwd=root, timeout=60)
    assert done.returncode == -signal.SIGKILL
    with GameStore(tmp_path, MANIFEST_OF) as store:
        assert len(store) == 4
        assert not store.torn


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_passes_unseen(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes overwritten anywhere but in the last line's end."""
    (tmp_path / GAMES).unlink(missing_ok=True)
    filled(tmp_path, 3)
    content = bytearray((tmp_path / GAMES).read_bytes())
    place = data.draw(st.integers(0, len(content) - 2))
    whole = bytes(content)
    content[place : place + 1] = data.draw(st.binary(min_size=0, max_size=3))
    assume(bytes(content) != whole)
    (tmp_path / GAMES).write_bytes(content)
    line = whole[:place].count(b"\n") + 1
    with pytest.raises(CorruptGames, match=rf"{GAMES}, line {line}: "):
        list(read_games(tmp_path))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"\n", "no game"),
        (b"\x00\x00\x00\n", "no game"),
        (b"\xff\xfe\n", "no game"),
        (b"[]\n", "no game"),
        (b"{}\n", "no game"),
        (seal(b'{"a":' + b"[" * 100_000 + b"}"), "no game"),
        (seal(b"{}"), "no game"),
        (seal(b'{"key":"\xff"}'), "no game"),
        (b'{"a":1,"checksum":"00000000"}\n', "checksum is another"),
    ],
)
def test_a_bad_line_is_named_or_set_aside(tmp_path: Path, line: bytes, told: str) -> None:
    filled(tmp_path, 3)
    file = tmp_path / GAMES
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + line + lines[2] + b"torn")
    damaged = file.read_bytes()
    with pytest.raises(CorruptGames, match=rf"games.jsonl, line 2: .*{told}.*set aside"):
        GameStore(tmp_path, MANIFEST_OF)
    assert file.read_bytes() == damaged, "nothing is changed without being asked"
    with GameStore(tmp_path, MANIFEST_OF, set_aside=True) as store:
        assert (store.set_aside, store.torn) == (1, True)
        assert store.missing(PLAN)[0] == list(PLAN)[1]
        store.append(game_of(store.missing(PLAN)[0]))
        assert len(list(store.records())) == len(store) == 3
    assert file.read_bytes() == lines[0] + lines[2] + lines[1]
    assert (tmp_path / SET_ASIDE).read_bytes() == line
    with GameStore(tmp_path, MANIFEST_OF) as store:
        assert len(store) == 3


def _set(record: GameRecord, path: str, value: object) -> bytes:
    data = json.loads(record.to_json())
    place = data
    *inner, last = path.split(".")
    for key in inner:
        place = place[int(key) if key.isdigit() else key]
    place[last] = value
    return seal(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("rewards", [1.0, 1.0], "rewards"),
        ("rewards", [9.0, -9.0], "rewards"),
        ("rewards", [float("nan"), 0.0], "rewards"),
        ("rewards", [1.0], "rewards"),
        ("players", ["a", "stranger"], "no 'stranger'"),
        ("players", ["b", "random"], "line 1 already"),
        ("players", ["a", "a"], "key"),
        ("game", "KuhnPoker", "key"),
        ("trainable", [1], "key|no 'random'"),
        ("trainable", [0, 1], "trainable"),
        ("key.run_seed", 5, "key"),
        ("key.step", 77, "key"),
        ("key.index", -1, "key"),
        ("key.index", "0", "key"),
        ("termination", "illegal", "termination"),
        ("termination", "turn_cap", "rewards"),
        ("discarded", "draw", "discarded"),
        ("turns.0.verdict", "illegal", "goes on"),
        ("turns.1.verdict", "illegal", "termination"),
        ("turns.0.player", 2, "turn"),
    ],
)
def test_lines_that_are_json_but_no_such_game_are_refused(tmp_path: Path, path: str, value: object, told: str) -> None:
    first, second = list(PLAN)[6], next(iter(PLAN))  # b's and a's first game: shared chance
    with GameStore(tmp_path, MANIFEST_OF) as store:
        store.append(game_of(first))
    bad = _set(game_of(second), path, value)
    with (tmp_path / GAMES).open("ab") as out:
        out.write(bad)
    with pytest.raises(CorruptGames, match=rf"line 2: .*({told})"):
        list(read_games(tmp_path))


def test_no_game_is_kept_twice(tmp_path: Path) -> None:
    filled(tmp_path, 2)
    with GameStore(tmp_path, MANIFEST_OF) as store, pytest.raises(ValueError, match="already"):
        store.append(game_of(next(iter(PLAN)), "loss"))
    file = tmp_path / GAMES
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines, lines[0]]))
    with pytest.raises(CorruptGames, match="line 3: its game is in line 1 already"):
        GameStore(tmp_path, MANIFEST_OF)
    with GameStore(tmp_path, MANIFEST_OF, set_aside=True) as store:
        assert len(store) == 2
    assert file.read_bytes() == b"".join(lines)


def test_void_games_are_kept_and_tried_again_with_another_chance(tmp_path: Path) -> None:
    game = next(iter(PLAN))
    with GameStore(tmp_path, MANIFEST_OF) as store:
        for retry in range(2):
            again = store.missing(PLAN)[0]
            assert again.key == replace(game.key, retry=retry)
            store.append(game_of(again, "draw", discarded="void", reason="no answer"))
        assert len(store) == 0
    with GameStore(tmp_path, MANIFEST_OF) as store:
        again = store.missing(PLAN)[0]
        assert again.key.retry == 2
        store.append(game_of(again))
        assert store.missing(PLAN)[0] == list(PLAN)[1]
        assert [record.discarded for record in store.records()] == ["void", "void", None]
        with pytest.raises(ValueError, match="already"):
            store.append(game_of(replace(again, key=again.key.next_retry())))


def test_games_of_other_plans_are_kept_apart(tmp_path: Path) -> None:
    filled(tmp_path, 12)
    with GameStore(tmp_path, MANIFEST_OF) as store:
        assert len(list(store.records(plan(1)))) == 4
        assert len(list(store.records())) == 12
        with pytest.raises(ValueError, match="seed=1"):
            store.missing(plan(1, seed=1))
        with pytest.raises(ValueError, match="lacks: perfect"):
            store.missing(plan(1, ("a", "perfect", "Nim")))


def test_records_that_are_none_of_the_evaluations_are_refused(tmp_path: Path) -> None:
    with GameStore(tmp_path, MANIFEST_OF) as store:
        for game in [*plan(1, seed=3), *plan(1, ("a", "perfect", "Nim"))]:
            with pytest.raises(ValueError, match="none of the evaluation"):
                store.append(game_of(game))
        store.append(losing(next(iter(PLAN))))
        store.append(losing(list(PLAN)[3]))
    assert (tmp_path / GAMES).read_bytes().count(b"\n") == 2


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    first = manifest("a", "random", rules={"illegal_rewards": (-1.5, 0.5), "turn_cap": None}, sampling={"top_p": 1.0})
    GameStore(tmp_path, first).close()
    GameStore(tmp_path, first).close()
    other = Manifest(
        1,
        "own",
        {"a": {"kind": "model", "path": "x"}, "random": {"kind": "random"}},
        {"rules": {"illegal_rewards": (-1, 1)}, "sampling": {"top_p": 0.9, "top_k": 5}},
    )
    with pytest.raises(OtherEvaluation) as told:
        GameStore(tmp_path, other)
    assert str(told.value).splitlines()[1:] == [
        '  chance: "shared" there, "own" now',
        "  seed: 0 there, 1 now",
        '  policies.a.kind: "random" there, "model" now',
        '  policies.a.path: not set there, "x" now',
        "  settings.rules.illegal_rewards: [-1.5, 0.5] there, [-1, 1] now",
        "  settings.rules.turn_cap: null there, not set now",
        "  settings.sampling.top_k: not set there, 5 now",
        "  settings.sampling.top_p: 1.0 there, 0.9 now",
    ]
    assert Manifest.read(tmp_path) == first


def test_new_policies_may_join(tmp_path: Path) -> None:
    filled(tmp_path, 4)
    with GameStore(tmp_path, manifest("c", "random")) as store:
        assert set(store.manifest.policies) == {"a", "b", "c", "random"}
        assert len(store) == 4
    assert set(Manifest.read(tmp_path).policies) == {"a", "b", "c", "random"}


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"version": 2}', '{"version": 1, "seed": 0}'])
def test_a_manifest_that_cannot_be_read_is_told(tmp_path: Path, content: str) -> None:
    filled(tmp_path, 1)
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(ValueError, match=r"manifest.json cannot be read"):
        GameStore(tmp_path, MANIFEST_OF)
    (tmp_path / MANIFEST).unlink()
    with pytest.raises(ValueError, match=r"no manifest.json beside it"):
        GameStore(tmp_path, MANIFEST_OF)


def test_one_at_a_time(tmp_path: Path) -> None:
    with GameStore(tmp_path, MANIFEST_OF):
        with pytest.raises(InUse, match="another process"):
            GameStore(tmp_path, MANIFEST_OF)
        assert list(read_games(tmp_path)) == []
    GameStore(tmp_path, MANIFEST_OF).close()


def test_a_failed_start_lets_go_of_the_folder(tmp_path: Path) -> None:
    filled(tmp_path, 1)
    with pytest.raises(OtherEvaluation):
        GameStore(tmp_path, manifest("a", seed=4))
    GameStore(tmp_path, MANIFEST_OF).close()


class _FullDisk:
    """A file that takes some bytes and then no more."""

    def __init__(self, out: object, room: int | None) -> None:
        self._out, self._room = out, room

    def write(self, content: bytes) -> int:
        if self._room is None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self._out.write(content[: self._room])  # type: ignore[attr-defined,no-any-return]

    def __getattr__(self, name: str) -> object:
        return getattr(self._out, name)


@pytest.mark.parametrize("room", [None, 0, 10])
def test_a_full_disk_leaves_whole_games_only(tmp_path: Path, room: int | None) -> None:
    with GameStore(tmp_path, MANIFEST_OF) as store:
        first, second, *_ = PLAN
        store.append(game_of(first))
        out = store._out
        store._out = _FullDisk(out, room)  # type: ignore[assignment]
        with pytest.raises(DiskFull, match="no room"):
            store.append(game_of(second))
        store._out = out
        assert store.missing(PLAN)[0] == second
        store.append(game_of(second))
        assert len(list(store.records())) == 2


def test_texts_of_any_kind_are_kept(tmp_path: Path) -> None:
    game = next(iter(PLAN))
    record = replace(game_of(game), reason="\ud800 half a pair\u2028\x00\r\n")
    with GameStore(tmp_path, MANIFEST_OF) as store:
        store.append(record)
        assert list(store.records()) == [record]


def test_games_can_be_replayed(tmp_path: Path) -> None:
    with GameStore(tmp_path, MANIFEST_OF) as store:
        for game in store.missing(PLAN):
            store.append(at_random(game))
    for record in read_games(tmp_path):
        assert differences(record, replay(record, Rules())) == []


def test_reading_where_nothing_is_says_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_games(tmp_path / "none"))
