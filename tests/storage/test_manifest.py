"""A folder's manifest: it finds a flipped bit, and takes no other file of its name for its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.storage.cache import is_intact
from recipe.spiral.storage.manifest import MANIFEST, WEIGHTS, changed_files, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("a.safetensors", "b.safetensors", "config.json", "deep/more.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode() * 100)
    return tmp_path


def test_every_changed_file_is_named(folder: Path) -> None:
    write_manifest(folder)
    assert changed_files(folder) == [] and is_intact(folder)
    flipped = bytearray((folder / "a.safetensors").read_bytes())
    flipped[50] ^= 1
    (folder / "a.safetensors").write_bytes(flipped)
    (folder / "deep/more.txt").unlink()
    assert changed_files(folder) == ["a.safetensors", "deep/more.txt"] and not is_intact(folder)


def test_it_may_be_of_the_weights_alone(folder: Path) -> None:
    write_manifest(folder, WEIGHTS)
    (folder / "config.json").write_text("{}")
    (folder / "new.safetensors").touch()
    assert changed_files(folder) == []


def test_a_folder_without_one_is_taken_as_it_is(folder: Path) -> None:
    assert changed_files(folder) == [] and not is_intact(folder)


@pytest.mark.parametrize("text", ['{"version": 3}', "[]", '{"a.safetensors": "abc"}', '{"files": {"a": "b"}}'])
def test_a_manifest_of_another_program_says_nothing(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_text(text)
    assert changed_files(folder) == [] and not is_intact(folder)


@pytest.mark.parametrize("text", ["", '{"a.safe', "[" * 100_000, "\udcff"])
def test_one_that_cannot_be_read_is_damaged_itself(folder: Path, text: str) -> None:
    (folder / MANIFEST).write_bytes(text.encode("utf-8", "surrogateescape"))
    assert changed_files(folder) == [MANIFEST] and not is_intact(folder)


def test_what_is_no_file_is_not_read(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps({"/dev/zero": "0" * 128, "deep": "0" * 128}))
    assert changed_files(folder) == ["/dev/zero", "deep"]
