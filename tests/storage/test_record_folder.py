"""A run's records, as others read them: torn lines, and steps that were written anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from recipe.spiral.storage.record_folder import RecordFolder
from tests.made import record


def test_a_line_that_is_torn_is_passed_over_where_that_is_asked_for(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    file = folder.write("train", 1, [record(index) for index in range(3)])
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + lines[1][:50] + b"\xff\n" + lines[2] + b'{"key": {}')
    broken: list[Exception] = []
    assert [game.key.index for game in folder.read_step("train", 1, broken.append)] == [0, 2]
    assert len(broken) == 2
    with pytest.raises(ValueError):
        list(folder.read_step("train", 1))


def test_a_stamp_changes_with_a_steps_games(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    folder.write("train", 1, [record(0)])
    first = folder.stamp("train", 1)
    assert folder.stamp("train", 1) == first
    folder.write("train", 1, [replace(record(0), reason="anew")])
    assert folder.stamp("train", 1) != first
