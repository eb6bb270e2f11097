"""The pool on the disk: members are whole or not there, checkpoints hold exactly theirs, and other runs' are found."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.models.provided import is_intact
from recipe.spiral.lab.opponents.elsewhere import form_of, materialise, members_of
from recipe.spiral.opponents import pool_folder
from recipe.spiral.opponents.model_files import local, missing_files
from recipe.spiral.opponents.pool import snapshot_name
from recipe.spiral.opponents.pool_folder import PoolFolder
from recipe.spiral.storage import disk
from recipe.spiral.storage.checkpoints import POOL, BrokenCheckpoint
from recipe.spiral.storage.disk import link_or_copy
from recipe.spiral.storage.manifest import MANIFEST, changed_files
from recipe.spiral.storage.saving import CheckpointFolder
from tests.storage.test_checkpoints import save

ROOT = Path(__file__).resolve().parents[2]


class Killed(BaseException):
    """Ends a test where a kill would."""


def tensors(file: Path, value: int, length: int = 4096) -> None:
    """A safetensors file of one tensor."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [length], "data_offsets": [0, length]}}).encode()
    file.write_bytes(len(header).to_bytes(8, "little") + header + bytes([value % 256]) * length)


def adapter(folder: Path, value: int = 1) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "adapter_config.json").write_text("{}")
    tensors(folder / "adapter_model.safetensors", value)
    return folder


def model(folder: Path, value: int = 1) -> Path:
    """In two files of weights, with an index."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for i, name in enumerate(names):
        tensors(folder / name, value + i)
    index = {"weight_map": {f"w{i}": name for i, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def write(pool: PoolFolder, name: str, value: int = 1) -> None:
    with pool.writing(name) as place:
        adapter(place, value)


def value_of(folder: Path) -> int:
    return (folder / "adapter_model.safetensors").read_bytes()[-1]


def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*args: Any) -> None:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(disk.os, "link", link)


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


def test_what_cannot_be_linked_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_links(monkeypatch)
    source = adapter(tmp_path / "source", 5)
    link_or_copy(source, tmp_path / "target")
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


# -- writing -----------------------------------------------------------------------------------------------------------


def test_a_member_is_written_and_removed(tmp_path: Path) -> None:
    pool = PoolFolder(tmp_path / "pool")
    assert pool.names == []
    write(pool, "step_000005")
    with pool.writing("base") as place:
        assert pool.names == ["step_000005"]
        model(place)
    assert pool.names == ["base", "step_000005"]
    assert sorted(path.name for path in pool.folder.iterdir()) == pool.names
    assert form_of(pool.path("base")) == "hf"
    pool.remove("base")
    pool.remove("base")
    assert pool.names == ["step_000005"]


def test_a_member_replaces_an_older_one(tmp_path: Path) -> None:
    pool = PoolFolder(tmp_path)
    write(pool, "a", 1)
    write(pool, "a", 2)
    assert value_of(pool.path("a")) == 2


def test_a_member_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolFolder(tmp_path)
    flushed: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(pool_folder, "flush", lambda folder: flushed.append((folder.name, pool.names)))
    write(pool, "a")
    assert flushed == [("unfinished-a", [])]


@pytest.mark.parametrize("error", [RuntimeError("the worker died"), Killed()])
def test_a_write_that_fails_changes_nothing(tmp_path: Path, error: BaseException) -> None:
    pool = PoolFolder(tmp_path)
    write(pool, "a", 1)
    for name in ("a", "b"):
        with pytest.raises(type(error)), pool.writing(name) as place:
            adapter(place, 2)
            raise error
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert value_of(pool.path("a")) == 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("moment", ["flush", "put_in_place", "missing_files", "PoolFolder.remove"])
def test_a_kill_leaves_no_half_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, after: bool
) -> None:
    pool = PoolFolder(tmp_path)
    write(pool, "a", 1)
    owner, _, name = moment.rpartition(".")
    holder: Any = getattr(pool_folder, owner) if owner else pool_folder
    original = getattr(holder, name)

    def killed(*args: Any) -> Any:
        if after:
            original(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, killed)
        patch.setattr(pool_folder.shutil, "rmtree", lambda *args, **kwargs: None)  # a kill cleans nothing up
        with suppress(Killed):
            write(pool, "b", 2)
    assert all(missing_files(pool.path(member)) == [] for member in pool.names)
    assert value_of(pool.path("a")) == 1
    pool.clear()
    assert sorted(path.name for path in tmp_path.iterdir()) == pool.names
    write(pool, "b", 3)
    assert value_of(pool.path("b")) == 3


def cut(file: str, keep: int = -1) -> Callable[[Path], None]:
    def shorten(place: Path) -> None:
        (place / file).write_bytes((place / file).read_bytes()[:keep])

    return shorten


@pytest.mark.parametrize(
    ("broken", "missing"),
    [
        (cut("model-00002-of-00002.safetensors"), "model-00002-of-00002.safetensors"),
        (cut("model-00001-of-00002.safetensors", 0), "model-00001-of-00002.safetensors"),
        (cut("model-00001-of-00002.safetensors", 20), "model-00001-of-00002.safetensors"),
        (lambda place: (place / "model-00002-of-00002.safetensors").unlink(), "model-00002-of-00002.safetensors"),
        (cut("model.safetensors.index.json"), "model.safetensors.index.json"),
        (cut("config.json"), "config.json"),
        (lambda place: (place / "config.json").unlink(), r"config\.json with \*\.safetensors"),
    ],
)
def test_what_is_not_whole_is_no_member(tmp_path: Path, broken: Callable[[Path], None], missing: str) -> None:
    pool = PoolFolder(tmp_path)
    message = f"member a of the pool is not whole: missing or cut short: {missing}"
    with pytest.raises(ValueError, match=message), pool.writing("a") as place:
        broken(model(place))
    assert list(tmp_path.iterdir()) == []


def test_an_index_names_no_files_elsewhere(tmp_path: Path) -> None:
    tensors(tmp_path / "secret.safetensors", 1)
    folder = model(tmp_path / "model")
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"w": "../secret.safetensors"}}')
    assert missing_files(folder) == ["../secret.safetensors"]


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", ".hidden", "unfinished-a"])
def test_names_that_are_no_folders_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a member's name"):
        PoolFolder(tmp_path).path(name)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def checkpointed(checkpoints: CheckpointFolder, pool: PoolFolder, step: int, names: list[str]) -> Path:
    """A checkpoint with these members."""
    with checkpoints.saving(step) as unfinished:
        pool.save_into(save(unfinished, step), names)
    return checkpoints.folder(step)


@pytest.mark.parametrize("links", [True, False], ids=["links", "copies"])
def test_a_resumed_pool_is_that_of_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool) -> None:
    """Though it went on, and evicted members; also after the checkpoints since then are gone."""
    if not links:
        no_links(monkeypatch)
    pool, checkpoints = PoolFolder(tmp_path / "pool"), CheckpointFolder(tmp_path / "checkpoints", 1)
    for i in (1, 2, 3):
        write(pool, f"m{i}", i)
    first = checkpointed(checkpoints, pool, 10, ["m1", "m2", "m3"])
    pool.remove("m1")
    write(pool, "m4", 4)
    second = checkpointed(checkpoints, pool, 20, ["m2", "m3", "m4"])
    pool.remove("m2")
    assert pool.restore_from(first, ["m1", "m2", "m3"]) == []
    assert pool.names == ["m1", "m2", "m3"]
    assert [value_of(pool.path(name)) for name in pool.names] == [1, 2, 3]
    shutil.rmtree(first)
    assert [missing_files(pool.path(name)) for name in pool.names] == [[], [], []]
    assert pool.restore_from(second, ["m2", "m3", "m4"]) == []
    assert [value_of(pool.path(name)) for name in pool.names] == [2, 3, 4]
    assert sorted(path.name for path in pool.folder.iterdir()) == ["m2", "m3", "m4"]
    if links:
        ours, theirs = pool.path("m4"), second / POOL / "m4"
        assert (ours / "adapter_model.safetensors").samefile(theirs / "adapter_model.safetensors")


def test_the_checkpoints_own_files_count(tmp_path: Path) -> None:
    """A member of that name that another course of the run wrote is replaced; one that is the same is not touched."""
    pool, checkpoint = PoolFolder(tmp_path / "pool"), tmp_path / "global_step_1"
    write(pool, "a", 1)
    write(pool, "b", 2)
    pool.save_into(checkpoint, ["a", "b"])
    write(pool, "b", 3)
    inode = pool.path("a").stat().st_ino
    assert pool.restore_from(checkpoint, ["a", "b"]) == []
    assert (value_of(pool.path("a")), value_of(pool.path("b"))) == (1, 2)
    assert pool.path("a").stat().st_ino == inode


def test_members_whose_files_are_gone_are_reported(tmp_path: Path) -> None:
    pool, checkpoint = PoolFolder(tmp_path / "pool"), tmp_path / "global_step_1"
    for i, name in enumerate("abcd"):
        write(pool, name, i)
    shutil.rmtree(pool.path("d"))
    pool.save_into(checkpoint, list("abcd"))
    pool.remove("a")
    shutil.rmtree(checkpoint / POOL / "a")
    cut("adapter_model.safetensors")(checkpoint / POOL / "b")  # and so in the pool: it is one file
    shutil.rmtree(checkpoint / POOL / "c")
    assert pool.restore_from(checkpoint, list("abcd")) == ["a", "b", "d"]
    assert pool.names == ["c"], "which was only here, and whole"


def test_a_fresh_start_has_no_members(tmp_path: Path) -> None:
    pool = PoolFolder(tmp_path)
    write(pool, "a")
    (tmp_path / "unfinished-b").mkdir()
    (tmp_path / ".unfinished-c.x1").mkdir()
    assert pool.restore_from(None, []) == []
    assert list(tmp_path.iterdir()) == []


def test_a_kill_in_a_restore_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, checkpoint = PoolFolder(tmp_path / "pool"), tmp_path / "global_step_1"
    for i, name in enumerate("abc"):
        write(pool, name, i)
    pool.save_into(checkpoint, list("abc"))
    for name in "abc":
        pool.remove(name)
    write(pool, "later")
    count = 0

    def killed(new: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise Killed
        disk.put_in_place(new, target)

    with monkeypatch.context() as patch:
        patch.setattr(pool_folder, "put_in_place", killed)
        with suppress(Killed):
            pool.restore_from(checkpoint, list("abc"))
    assert pool.names == ["a", "later"]
    assert pool.restore_from(checkpoint, list("abc")) == []
    assert [value_of(pool.path(name)) for name in pool.names] == [0, 1, 2]


# -- pools from elsewhere ----------------------------------------------------------------------------------------------


def found(path: Path, **more: Any) -> list[tuple[int, str, str]]:
    return [(step, folder.name, form) for step, folder, form in members_of(path, **more)]


def checkpoint(checkpoints: Path, step: int) -> Path:
    folder = save(checkpoints, step)
    huggingface = folder / "actor/huggingface"
    huggingface.mkdir()
    for name in ("config.json", "tokenizer_config.json"):
        (huggingface / name).write_text("{}")
    return folder


def test_a_runs_checkpoints(tmp_path: Path) -> None:
    for step in (100, 20, 60):
        checkpoint(tmp_path / "checkpoints", step)
    model(tmp_path / "model")
    (tmp_path / "checkpoints/unfinished-120/global_step_120/actor").mkdir(parents=True)
    everything = [(step, f"global_step_{step}", "checkpoint") for step in (20, 60, 100)]
    assert found(tmp_path) == found(tmp_path / "checkpoints") == everything
    assert found(tmp_path / "checkpoints/global_step_60") == everything[1:2]


@pytest.mark.parametrize(
    ("more", "taken"),
    [
        ({}, [0, 10, 20, 30, 40, 50]),
        ({"start": 15}, [20, 30, 40, 50]),
        ({"start": 10, "interval": 20}, [10, 30, 50]),
        ({"start": 5, "interval": 15, "size": 2}, [10, 30]),
        ({"size": 99}, [0, 10, 20, 30, 40, 50]),
    ],
)
def test_which_steps_are_taken(tmp_path: Path, more: dict[str, int], taken: list[int]) -> None:
    """Here the pool of another run."""
    adapter(tmp_path / "pool/base")
    for step in (10, 20, 30, 40, 50):
        adapter(tmp_path / "pool" / snapshot_name(step))
    assert [step for step, _, _ in members_of(tmp_path, **more)] == taken
    assert found(tmp_path, **more) == found(tmp_path / "pool", **more)


def test_a_folder_of_exports(tmp_path: Path) -> None:
    model(tmp_path / "Qwen3-4B")
    adapter(tmp_path / "with-lora")
    (tmp_path / "notes").mkdir()
    (tmp_path / "file").touch()
    assert found(tmp_path) == [(0, "Qwen3-4B", "hf"), (1, "with-lora", "adapter")]
    assert found(tmp_path / "Qwen3-4B") == [(0, "Qwen3-4B", "hf")]


def test_folders_that_hold_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^fsp\.pool=.*/none: there is no such folder$"):
        members_of(tmp_path / "none", setting="fsp.pool")
    with pytest.raises(
        ValueError, match=r"path=.*: holds nothing to play against; must be a checkpoint .*adapter_model"
    ):
        members_of(tmp_path)
    adapter(tmp_path / "a-10")
    with pytest.raises(ValueError, match=r"has nothing of step 11 or later; its last is of step 10"):
        members_of(tmp_path, start=11)
    with pytest.raises(ValueError, match=r"interval=0: must be a whole number from 1 up"):
        members_of(tmp_path, interval=0)


def test_what_is_taken_must_be_whole(tmp_path: Path) -> None:
    folder = model(tmp_path / "m/a-1")
    cut("model-00001-of-00002.safetensors")(folder)
    adapter(tmp_path / "m/a-2")
    with pytest.raises(ValueError, match=r"a-1 is not whole: missing or cut short: model-00001-of-00002"):
        members_of(tmp_path / "m")
    assert found(tmp_path / "m", start=2) == [(2, "a-2", "adapter")]
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.json").write_text("{}")
    (old / "pytorch_model.bin").touch()
    with pytest.raises(ValueError, match=r"pytorch's \*\.bin are not read: save it as safetensors"):
        members_of(old)
    half = checkpoint(tmp_path / "run/checkpoints", 5)
    (half / "actor/model_world_size_1_rank_0.pt").unlink()
    with pytest.raises(BrokenCheckpoint):
        members_of(tmp_path / "run")


def test_a_member_keeps_the_digests_of_its_weights(tmp_path: Path) -> None:
    """Through a checkpoint and back."""
    pool, checkpoint = PoolFolder(tmp_path / "pool"), tmp_path / "global_step_1"
    with pool.writing("given") as place:
        materialise(model(tmp_path / "source"), place)
    assert is_intact(pool.path("given"))
    pool.save_into(checkpoint, ["given"])
    pool.remove("given")
    pool.restore_from(checkpoint, ["given"])
    assert is_intact(pool.path("given"))
    weights = pool.path("given") / "model-00002-of-00002.safetensors"
    flipped = bytearray(weights.read_bytes())
    flipped[-1] ^= 1
    weights.write_bytes(flipped)
    assert changed_files(pool.path("given")) == [weights.name]
    with pytest.raises(ValueError, match=rf"{pool.path('given')}: damaged: {weights.name}: .*remove {MANIFEST}"):
        materialise(pool.path("given"), tmp_path / "another")


def test_what_a_member_needs_is_linked(tmp_path: Path) -> None:
    source = model(tmp_path / "source")
    for more in ("optimizer.pt", "code.py", "old.safetensors", "chat_template.jinja"):
        (source / more).touch()
    pool = PoolFolder(tmp_path / "pool")
    with pool.writing("given") as place:
        materialise(source, place)
    there = {file.name for file in pool.path("given").iterdir()}
    kept = {file.name for file in source.iterdir()} - {"optimizer.pt", "code.py", "old.safetensors"}
    assert there == kept | {MANIFEST}
    assert (pool.path("given") / "config.json").samefile(source / "config.json")
    with pool.writing("lora") as place:
        materialise(adapter(tmp_path / "lora", 3), place)
    assert value_of(pool.path("lora")) == 3
    with pytest.raises(ValueError, match="is nothing to play against"), pool.writing("nothing") as place:
        materialise(tmp_path, place)
    assert pool.names == ["given", "lora"]


@pytest.mark.full
def test_checkpoints_of_ours_are_exported(tmp_path: Path) -> None:
    """Whole models and adapters; what arrives is what the training had, to the bit."""
    from safetensors.torch import load_file

    made = subprocess.run(
        [sys.executable, "tests/made_checkpoints.py", str(tmp_path), "1"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert made.returncode == 0, made.stderr[-3000:]
    pool = PoolFolder(tmp_path / "pool")
    forms = {"untied": "hf", "tied": "hf", "lora": "adapter", "lora_only": "adapter"}
    for kind, form in forms.items():
        ((step, folder, source_form),) = members_of(tmp_path / kind)
        assert (step, source_form) == (7, "checkpoint")
        with pool.writing(kind) as place:
            materialise(folder, place)
        assert form_of(pool.path(kind)) == form
        original = tmp_path / kind / ("adapter" if form == "adapter" else "model")
        file = "adapter_model.safetensors" if form == "adapter" else "model.safetensors"
        ours, theirs = load_file(pool.path(kind) / file), load_file(original / file)
        assert ours.keys() == theirs.keys()
        assert all((ours[name] == theirs[name]).all() for name in theirs)
    assert sorted(path.name for path in pool.folder.iterdir()) == sorted(forms)


def test_a_model_of_the_hub_is_read_from_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose files are symbolic links."""
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    asked: list[str] = []

    def download(name: str, **kwargs: object) -> str:
        asked.append(name)
        if name == "some/other":
            raise LocalEntryNotFoundError("no connection")
        if name == "an/other":
            raise RuntimeError("Invalid port: '80:80'")  # httpx's, of a proxy
        return str(tmp_path / "snapshot")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert local("some/model") == tmp_path / "snapshot"
    assert local(str(tmp_path)) == tmp_path and local("~/x") == Path("~/x").expanduser()
    with pytest.raises(ValueError, match="some/other: is no folder here, and could not be had from the hub: no conn"):
        local("some/other")
    with pytest.raises(
        ValueError, match="an/other: is no folder here, and could not be had from the hub: Invalid port"
    ):
        local("an/other")
    assert asked == ["some/model", "some/other", "an/other"]
