"""The pool: who joins, who leaves, who is played; on the disk members are whole or not there."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.opponents import pool as pools
from recipe.spiral.opponents.model_files import missing_files
from recipe.spiral.opponents.pool import Pool, PoolFolder, snapshot_name
from recipe.spiral.players.records import GameRecord
from recipe.spiral.players.seeds import GameKey
from recipe.spiral.storage.checkpoints import POOL
from tests.opponents.folders import Killed, adapter, no_links, value_of, write


def filled(count: int, **settings: Any) -> Pool:
    pool = Pool(**settings)
    for step in range(count):
        pool.add(snapshot_name(step), step)
    return pool


def game(index: int, member: str, reward: float) -> GameRecord:
    """A game that the policy plays as player 0."""
    return GameRecord(
        GameKey("train", 0, 1, index), "Nim", ("policy", member), (0,), rewards=(reward, -reward), opponent="pool"
    )


def test_the_oldest_leaves_and_permanent_members_never_do() -> None:
    pool = Pool(size=3, update_interval=1)
    pool.add("base", 0, permanent=True)
    for step in range(1, 6):
        pool.add(snapshot_name(step), step)
    assert list(pool.members) == ["base", "step_000004", "step_000005"]
    pool.size = 1
    pool.add("step_000006", 6)
    assert list(pool.members) == ["base", "step_000006"], "the newest stays, too"


def test_members_are_drawn_without_replacement() -> None:
    pool = filled(5)
    for step in range(50):
        assert len(set(pool.choose(step, 3))) == 3
        assert pool.choose(step, 3) == pool.choose(step, 3)
    assert sorted(pool.choose(1, 9)) == list(pool.members)
    drawn = Counter(name for step in range(2000) for name in pool.choose(step, 1))
    assert all(abs(count - 400) < 80 for count in drawn.values()) and len(drawn) == 5


def test_hard_members_are_drawn_by_the_square_of_their_win_rate() -> None:
    pool = filled(2, sample="hard")
    easy, hard = pool.members.values()
    easy.points, easy.games = 89.5, 99.0  # w = 0.9
    hard.points, hard.games = 29.5, 99.0  # w = 0.3
    drawn = Counter(name for step in range(5000) for name in pool.choose(step, 1))
    assert drawn[easy.name] / 5000 == pytest.approx(0.01 / (0.01 + 0.49), abs=0.01)


def test_win_rates() -> None:
    pool = filled(2)
    first, second = pool.members.values()
    assert first.win_rate == 0.5
    pool.record([game(index, first.name, reward) for index, reward in enumerate([1.0, 0.0, -1.0, 1.0])])
    assert first.win_rate == pytest.approx((1 * 0.99**3 + 0.5 * 0.99**2 + 1 + 0.5) / (1 + 0.99 + 0.99**2 + 0.99**3 + 1))
    assert second.win_rate == 0.5
    pool.record([game(index, first.name, -1.0) for index in range(1000)])
    assert 0 < first.win_rate < 0.01, "it forgets, and is never 0"
    pool.record([game(1, "step_000099", 1.0)])  # has left since


def test_a_state_goes_through_json() -> None:
    pool = filled(9, size=4, sample="hard")
    pool.record([game(index, "step_000007", 1.0) for index in range(9)])
    again = Pool(size=4, sample="hard")
    again.load_state_dict(json.loads(json.dumps(pool.state_dict())))
    assert again == pool and again.state_dict() == pool.state_dict()
    assert not again.due(5)


# -- on the disk -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("the worker died"), Killed()])
def test_a_write_that_fails_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    pool = PoolFolder(tmp_path)
    write(pool, "a", 1)
    for name in ("a", "b"):
        with pytest.raises(type(error)), pool.writing(name) as place:
            adapter(place, 2)
            raise error
    assert [path.name for path in tmp_path.iterdir()] == ["a"] and value_of(pool.path("a")) == 1
    with pytest.raises(ValueError, match="not whole"), pool.writing("b") as place:
        (adapter(place) / "adapter_model.safetensors").unlink()
    assert pool.names == ["a"]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("moment", ["flush", "missing_files", "write_manifest"])
def test_a_kill_leaves_no_half_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, after: bool
) -> None:
    pool = PoolFolder(tmp_path)
    write(pool, "a", 1)
    original = getattr(pools, moment)

    def killed(*args: Any) -> Any:
        if after:
            original(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(pools, moment, killed)
        patch.setattr("shutil.rmtree", lambda *args, **kwargs: None)  # a kill cleans nothing up
        with suppress(Killed):
            write(pool, "a", 2)
    assert all(missing_files(pool.path(member)) == [] for member in pool.names)
    write(pool, "a", 3)
    assert value_of(pool.path("a")) == 3
    pool.restore_from(None)
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_removed_is_said_and_is_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of open files on NFS. A member of the same name comes again, twice."""
    pool, said = PoolFolder(tmp_path), list[str]()
    pool.say = said.append
    write(pool, "a", 1)

    def unlink(path: Any, **more: Any) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        for value in (2, 3):
            write(pool, "a", value)
        assert value_of(pool.path("a")) == 3
        pool.restore_from(None)
    assert said and all("could not be removed" in line for line in said) and pool.names == []
    write(pool, "a", 4)
    assert (pool.names, value_of(pool.path("a"))) == (["a"], 4)


@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_a_resumed_pool_is_that_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Though it went on, and evicted members or wrote others of their names; also after the checkpoint is gone."""
    if not links:
        no_links(monkeypatch)
    pool, first, second = PoolFolder(tmp_path / "pool"), tmp_path / "global_step_10", tmp_path / "global_step_20"
    for i in (1, 2, 3):
        write(pool, f"m{i}", i)
    pool.save_into(first, pool.names)
    pool.keep_only(["m2", "m3"])
    write(pool, "m3", 9)
    write(pool, "m4", 4)
    pool.save_into(second, pool.names)
    pool.remove("m2")
    pool.restore_from(first)
    assert [value_of(pool.path(name)) for name in pool.names] == [1, 2, 3]
    shutil.rmtree(first)
    assert [missing_files(pool.path(name)) for name in pool.names] == [[], [], []]
    pool.restore_from(second)
    assert [value_of(pool.path(name)) for name in pool.names] == [2, 9, 4]
    assert sorted(path.name for path in pool.folder.iterdir()) == ["m2", "m3", "m4"]
    ours, theirs = pool.path("m4"), second / POOL / "m4"
    assert (ours / "adapter_model.safetensors").samefile(theirs / "adapter_model.safetensors") is links
