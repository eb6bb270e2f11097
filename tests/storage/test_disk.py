"""Files are there whole, or as they were before."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe.spiral.storage.disk import read_json, write_whole


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "half"
        raise ValueError("broken off")

    write_whole(tmp_path / "file", "before")
    with pytest.raises(ValueError, match="broken off"):
        write_whole(tmp_path / "file", lines())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "before"}


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


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "\0"])
def test_a_file_of_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: "):
        read_json(tmp_path / "a.json")
