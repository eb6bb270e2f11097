"""A manifest notices what changed in a folder, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recipe.spiral.storage.manifest import MANIFEST, changed_files, read_manifest, write_manifest


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    for name in ("weights", "inner/config", ".nfs0001"):
        (tmp_path / name).write_text(name)
    write_manifest(tmp_path)
    return tmp_path


def test_changes_are_named(folder: Path) -> None:
    assert changed_files(folder) == [] and (read_manifest(folder) or {}).keys() == {"weights", "inner/config"}
    (folder / ".nfs0001").unlink()
    (folder / "more").touch()
    assert changed_files(folder) == []
    (folder / "weights").write_text("Weights")
    (folder / "inner" / "config").unlink()
    assert changed_files(folder) == ["inner/config", "weights"]
    assert changed_files(folder, ("inner/",)) == ["inner/config"]


@pytest.mark.parametrize("content", ["[]", "7", '{"version": 2}', '{"weights": "' + "0" * 128 + '"}', '{"a": [1]}'])
def test_other_programs_manifests_say_nothing(folder: Path, content: str) -> None:
    (folder / MANIFEST).write_text(content)
    assert read_manifest(folder) is None and changed_files(folder) == []


def test_a_manifest_from_elsewhere_is_no_order_to_read_a_device(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps({"../../../../../../dev/zero": [0, "x"]}))
    assert changed_files(folder) == ["../../../../../../dev/zero"]
