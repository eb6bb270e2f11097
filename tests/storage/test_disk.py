"""Files are there whole, or as they were before."""

from __future__ import annotations

import errno
import os
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe.spiral.storage.checkpoints import STATE_FILE, BrokenCheckpoint, read_state
from recipe.spiral.storage.disk import read_json, read_small, write_whole
from recipe.spiral.storage.manifest import MANIFEST, changed_files
from recipe.spiral.storage.metrics_file import METRICS, read_metrics
from recipe.spiral.storage.run_config import load_config


@pytest.mark.parametrize("text", ["one\ntwo\n", ["one\n", "two\n"], (line for line in ("one\n", "two\n"))])
def test_text_and_lines(tmp_path: Path, text: str) -> None:
    write_whole(tmp_path / "file", text)
    assert (tmp_path / "file").read_text() == "one\ntwo\n"


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "half"
        raise ValueError("broken off")

    write_whole(tmp_path / "file", "before")
    with pytest.raises(ValueError, match="broken off"):
        write_whole(tmp_path / "file", lines())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "before"}


def test_a_full_disk_is_told_with_the_files_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/file'"):
        write_whole(tmp_path / "file", "text")


def test_processes_that_write_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    this = os.getpid()

    def lines() -> Iterator[str]:
        yield "ours, "
        monkeypatch.setattr(os, "getpid", lambda: this + 1)
        write_whole(tmp_path / "file", "the other's")
        assert (tmp_path / "file").read_text() == "the other's"
        yield "whole"

    write_whole(tmp_path / "file", lines())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "ours, whole"}


@pytest.mark.parametrize("name", [STATE_FILE, "config.yaml", MANIFEST])
def test_a_file_that_could_fill_the_memory_is_refused_by_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    os.truncate(tmp_path / name, 10**11)  # takes no room on the disk
    tracemalloc.start()
    with pytest.raises(OSError, match=f"{name}: has more than 67108864 bytes"):
        read_small(tmp_path / name)
    if name == STATE_FILE:
        with pytest.raises(BrokenCheckpoint, match=f"{name}: has more than"):
            read_state(tmp_path)
    elif name == MANIFEST:
        assert changed_files(tmp_path) == [MANIFEST]
    else:
        with pytest.raises(OSError, match=f"{name}: has more than 1048576 bytes"):
            load_config(tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 2**28
    tracemalloc.stop()


def test_metrics_without_lines_are_passed_over_in_pieces(tmp_path: Path) -> None:
    (tmp_path / METRICS).write_bytes(bytes(2**26) + b'\n{"step": 3, "time": 1.0, "metrics": {}}\n')
    tracemalloc.start()
    assert [logged.step for logged, _ in read_metrics(tmp_path / METRICS)] == [3]
    assert tracemalloc.get_traced_memory()[1] < 2**26
    tracemalloc.stop()


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "\0"])
def test_a_file_of_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: "):
        read_json(tmp_path / "a.json")
