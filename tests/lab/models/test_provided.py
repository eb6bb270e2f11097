"""Folders that are made once: found again, made again when broken, never half there, and by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import time
from pathlib import Path

import pytest

from recipe.spiral.lab.models.provided import is_intact, provide
from recipe.spiral.storage.cache import cache_dir, private_folder
from recipe.spiral.storage.disk import WITHOUT_LOCKS, InUse
from recipe.spiral.storage.manifest import MANIFEST


def build(folder: Path) -> None:
    with (folder.parent.parent / "builds").open("a") as log:
        log.write("built\n")
    (folder / "inner").mkdir()
    (folder / "weights").write_bytes(b"12345678")
    (folder / "inner" / "config").write_text("{}")


def builds(root: Path) -> int:
    return len((root / "builds").read_text().split())


def test_is_built_once(tmp_path: Path) -> None:
    folder = provide(tmp_path / "model", build)
    assert (folder / "weights").read_bytes() == b"12345678"
    provide(folder, build)
    assert builds(tmp_path) == 1
    provide(folder, build, force=True)
    assert builds(tmp_path) == 2
    assert not list(tmp_path.glob(".model.*")), "leftovers"


@pytest.mark.parametrize("harm", ["cut", "changed", "removed", "no manifest", "bad manifest"])
def test_a_broken_folder_is_built_again(tmp_path: Path, harm: str) -> None:
    folder = provide(tmp_path / "model", build)
    if harm == "cut":
        (folder / "weights").write_bytes(b"1234")
    elif harm == "changed":
        (folder / "weights").write_bytes(b"12345679")
    elif harm == "removed":
        (folder / "inner" / "config").unlink()
    elif harm == "no manifest":
        (folder / MANIFEST).unlink()
    else:
        (folder / MANIFEST).write_text('{"weights": ')
    assert not is_intact(folder)
    provide(folder, build)
    assert is_intact(folder) and (folder / "weights").read_bytes() == b"12345678"
    assert builds(tmp_path) == 2


def test_a_failed_build_leaves_nothing_and_takes_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        provide(tmp_path / "model", fail)
    assert not (tmp_path / "model").exists()
    folder = provide(tmp_path / "model", build)
    with pytest.raises(RuntimeError, match="no"):
        provide(folder, fail, force=True)
    assert is_intact(folder)
    assert not list(tmp_path.glob(".model.*")), "leftovers"


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".model.killed").mkdir()
    provide(tmp_path / "model", build)
    assert not list(tmp_path.glob(".model.*"))


def slow_build(folder: Path) -> None:
    build(folder)
    time.sleep(1)


def test_two_processes_build_one_folder_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=provide, args=(tmp_path / "model", slow_build)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert builds(tmp_path) == 1 and is_intact(tmp_path / "model")


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SPIRAL_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "verl-spiral"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "verl-spiral"
    monkeypatch.setenv("SPIRAL_CACHE", "~/own")
    assert cache_dir() == tmp_path / "own"
    assert cache_dir(tmp_path / "given") == tmp_path / "given"


def test_a_private_folder_is_this_users_alone(tmp_path: Path) -> None:
    folder = private_folder(tmp_path / "cache" / "mine")
    (folder / "kept").touch()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (private_folder(folder) / "kept").exists()
    folder.chmod(0o777)
    assert not (private_folder(folder) / "kept").exists(), "anybody may have put it there"
    assert folder.stat().st_mode & 0o777 == 0o700


def test_what_another_user_made_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "theirs")
    with pytest.raises(PermissionError, match=r"link: is not a folder of yours; remove it, or set SPIRAL_CACHE"):
        private_folder(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: (tmp_path / "theirs").stat().st_uid + 1)
    with pytest.raises(PermissionError, match="theirs: is not a folder of yours"):
        private_folder(tmp_path / "theirs")


def test_a_cache_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PermissionError, match=r"file/cache: cannot be made \(Not a directory\); set SPIRAL_CACHE to"):
        private_folder(tmp_path / "file" / "cache")


def test_a_cache_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(InUse, match=f"SPIRAL_CACHE={tmp_path}: files cannot be locked there"):
        provide(tmp_path / "model", build)
    monkeypatch.setenv(WITHOUT_LOCKS, "1")
    assert is_intact(provide(tmp_path / "model", build))
