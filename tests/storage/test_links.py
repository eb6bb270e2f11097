"""Hard links, and copies where the disk has none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recipe.spiral.storage.disk import link_or_copy
from tests.opponents.folders import adapter, no_links, value_of

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


@pytest.mark.timeout(20)
def test_a_folder_that_somebody_else_made_has_an_end(tmp_path: Path) -> None:
    """Two links to the folder itself would be followed 2^40 times."""
    source = adapter(tmp_path / "source", 5)
    for name in ("a", "b"):
        (source / name).symlink_to(".")
    link_or_copy(source, tmp_path / "target")
    assert sorted(file.name for file in (tmp_path / "target").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]


def test_nothing_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter(tmp_path / "a", 1)
    adapter(tmp_path / "b", 2)
    for links in (True, False):
        if not links:
            no_links(monkeypatch)
        with pytest.raises(FileExistsError):
            link_or_copy(tmp_path / "a", tmp_path / "b")
        assert value_of(tmp_path / "b") == 2
