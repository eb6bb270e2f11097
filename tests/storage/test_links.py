"""Hard links, and copies where the disk has none; what a pool's members take in checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from recipe.spiral.opponents.pool_folder import PoolFolder
from recipe.spiral.storage import saving
from recipe.spiral.storage.checkpoints import COPIED, POOL, steps
from recipe.spiral.storage.disk import DiskFull, freed, link_or_copy, size
from recipe.spiral.storage.saving import CheckpointFolder
from tests.opponents.folders import adapter, no_links, value_of, write
from tests.storage.test_checkpoints import save


def checkpointed(checkpoints: CheckpointFolder, pool: PoolFolder, step: int, names: list[str]) -> Path:
    """A checkpoint with these members."""
    with checkpoints.saving(step) as unfinished:
        pool.save_into(save(unfinished, step), names)
    return checkpoints.folder(step)


# -- links -------------------------------------------------------------------------------------------------------------


def test_links_are_hard(tmp_path: Path) -> None:
    """Also to what a symbolic link leads to, as in a download cache, which may be cleared."""
    blob = tmp_path / "blob"
    blob.write_text("weights")
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    (source / "model.safetensors").symlink_to("../blob")
    (source / "sub/file").write_text("more")
    assert link_or_copy(source, tmp_path / "target") == 0
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


def test_what_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links(monkeypatch)
    source = adapter(tmp_path / "source", 5)
    assert link_or_copy(source, tmp_path / "target") == 2
    assert value_of(tmp_path / "target") == 5
    assert not (tmp_path / "target/adapter_config.json").samefile(source / "adapter_config.json")


def test_nothing_is_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter(tmp_path / "a", 1)
    adapter(tmp_path / "b", 2)
    for links in (True, False):
        if not links:
            no_links(monkeypatch)
        with pytest.raises(FileExistsError):
            link_or_copy(tmp_path / "a", tmp_path / "b")
        assert value_of(tmp_path / "b") == 2


def test_removing_gives_back_what_no_other_name_holds(tmp_path: Path) -> None:
    adapter(tmp_path / "a")
    link_or_copy(tmp_path / "a/adapter_model.safetensors", tmp_path / "second")
    assert freed(tmp_path / "a") == size(tmp_path / "a") - (tmp_path / "second").stat().st_blocks * 512 > 0


# -- room --------------------------------------------------------------------------------------------------------------


def test_linked_members_need_no_room_in_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor when the pool has evicted them since, and the latest checkpoint alone holds them."""
    pool, checkpoints = PoolFolder(tmp_path / "pool"), CheckpointFolder(tmp_path / "checkpoints", 1, keep=1)
    for i in range(40):
        write(pool, f"m{i}", i)
    folder = checkpointed(checkpoints, pool, 1, pool.names)
    for name in pool.names[1:]:
        pool.remove(name)
    without = size(folder) - size(folder / POOL)
    assert size(folder / POOL) > 10 * without
    monkeypatch.setattr(saving, "free", lambda path: without + 4096)
    assert checkpoints.shortage() is None
    checkpointed(checkpoints, pool, 2, pool.names)
    assert steps(checkpoints.path) == [2]


def test_copied_members_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links(monkeypatch)
    pool, checkpoints = PoolFolder(tmp_path / "pool"), CheckpointFolder(tmp_path / "checkpoints", 1)
    write(pool, "a")
    folder = checkpointed(checkpoints, pool, 1, ["a"])
    assert (folder / POOL / COPIED).is_file()
    monkeypatch.setattr(saving, "free", lambda path: size(folder) - 1)
    with pytest.raises(DiskFull):
        checkpointed(checkpoints, pool, 2, ["a"])
    assert checkpoints.shortage() is not None


def test_a_checkpoint_that_goes_gives_back_only_what_is_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, checkpoints = PoolFolder(tmp_path / "pool"), CheckpointFolder(tmp_path / "checkpoints", 1, keep=2)
    for i in range(40):
        write(pool, f"m{i}", i)
    folders = [checkpointed(checkpoints, pool, step, pool.names) for step in (1, 2)]
    own = size(folders[0]) - size(folders[0] / POOL)
    (folders[1] / "more").write_bytes(bytes(3 * own))
    monkeypatch.setattr(saving, "free", lambda path: own)
    assert checkpoints.shortage() is not None, "the first one's members stay"
