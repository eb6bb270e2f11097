"""The pool on the disk: members are whole or not there, and checkpoints hold exactly theirs."""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.opponents import pool_folder
from recipe.spiral.opponents.model_files import missing_files
from recipe.spiral.opponents.pool_folder import PoolFolder
from recipe.spiral.storage.checkpoints import POOL
from tests.opponents.folders import Killed, adapter, no_links, value_of, write


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
    original = getattr(pool_folder, moment)

    def killed(*args: Any) -> Any:
        if after:
            original(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(pool_folder, moment, killed)
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
    assert said and all("cannot be removed" in line for line in said) and pool.names == []
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
