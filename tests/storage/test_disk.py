"""Files are there whole, or as they were before; links, locks, and manifests that notice what changed."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from recipe.spiral.storage.disk import InUse, append_line, is_in_use, link_or_copy, only_one, read_json, write_whole
from recipe.spiral.storage.manifest import MANIFEST, changed_files, read_manifest, write_manifest
from tests.opponents.folders import adapter, no_links, value_of


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    def lines() -> Iterator[bytes]:
        yield b"half"
        raise ValueError("broken off")

    write_whole(tmp_path / "file", "before")
    with pytest.raises(ValueError, match="broken off"):
        write_whole(tmp_path / "file", lines())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "before"}


def test_processes_that_write_one_file_do_not_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    this = os.getpid()

    def lines() -> Iterator[bytes]:
        yield b"ours, "
        monkeypatch.setattr(os, "getpid", lambda: this + 1)
        write_whole(tmp_path / "file", "the other's")
        assert (tmp_path / "file").read_text() == "the other's"
        yield b"whole"

    write_whole(tmp_path / "file", lines())
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"file": "ours, whole"}


@pytest.mark.parametrize("text", ["", "[]", "7", "null", "[" * 100_000, '{"a": ' * 100_000, "9" * 5000, "\0"])
def test_a_file_of_no_mapping_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: "):
        read_json(tmp_path / "a.json")


def test_a_line_is_whole_after_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("whole\nhal")
    append_line(tmp_path / "lines", "new")
    assert (tmp_path / "lines").read_text() == "whole\nhal\nnew\n"


# -- one process a folder ----------------------------------------------------------------------------------------------

HOLDS = """
import sys, time
from pathlib import Path
from recipe.spiral.storage.disk import only_one
with only_one(Path(sys.argv[1])): print(1, flush=True); time.sleep(60)
"""


def test_a_folder_is_one_runs(tmp_path: Path) -> None:
    assert not is_in_use(tmp_path)
    first = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path], stdout=subprocess.PIPE)
    try:
        assert first.stdout is not None and first.stdout.readline() and is_in_use(tmp_path)
        with pytest.raises(InUse, match=f"run_dir.*process {first.pid} "), only_one(tmp_path):
            pytest.fail("two runs in one folder")
    finally:
        first.kill()
        first.wait()
    assert not is_in_use(tmp_path)
    with only_one(tmp_path):
        pass


def test_a_disk_without_locks_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Lustre, if it is mounted without flock."""

    def refuse(*given: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.warns(UserWarning, match="start nothing twice"), only_one(tmp_path):
        assert not is_in_use(tmp_path)


# -- links -------------------------------------------------------------------------------------------------------------


def test_links_are_hard(tmp_path: Path) -> None:
    """Also to what a symbolic link leads to, as in a download cache, which may be cleared."""
    blob = tmp_path / "blob"
    blob.write_text("weights")
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "model.safetensors").symlink_to("../blob")
    (source / "sub/file").write_text("more")
    link_or_copy(source, tmp_path / "target")
    assert (tmp_path / "target/model.safetensors").samefile(blob)
    assert not (tmp_path / "target/model.safetensors").is_symlink()
    shutil.rmtree(source)
    blob.unlink()
    assert (tmp_path / "target/model.safetensors").read_text() == "weights"
    assert (tmp_path / "target/sub/file").read_text() == "more"


def test_nothing_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter(tmp_path / "a", 1)
    adapter(tmp_path / "b", 2)
    for links in (True, False):
        if not links:
            no_links(monkeypatch)
        with pytest.raises(OSError):
            link_or_copy(tmp_path / "a", tmp_path / "b")
        assert value_of(tmp_path / "b") == 2


# -- manifests ---------------------------------------------------------------------------------------------------------


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
    assert read_manifest(folder) == {} and changed_files(folder) == []


def test_a_manifest_from_elsewhere_is_no_order_to_read_a_device(folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps({"../../../../../../dev/zero": [0, "x"]}))
    assert changed_files(folder) == ["../../../../../../dev/zero"]
