"""A checkpoint is one object: whatever is changed in it, or in its pool, is refused by name, or changes nothing."""

from __future__ import annotations

import json
import os
import random
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from recipe.spiral.opponents.pool import Member
from recipe.spiral.opponents.pool_folder import PoolFolder
from recipe.spiral.storage.checkpoints import (
    REFERENCE,
    TRACKER,
    BrokenCheckpoint,
    changed,
    check_resumable,
    name_latest,
    reference_file,
    seal,
    write_state,
)
from recipe.spiral.storage.manifest import MANIFEST, changed_member, write_manifest
from recipe.spiral.storage.saving import CheckpointFolder
from tests.storage.test_checkpoints import state

STEPS = (4, 6)
MEMBERS = ("step_000002", "step_000004")


def fill(folder: Path, step: int, pool: PoolFolder) -> None:
    """All that a checkpoint may hold."""
    values = [["KuhnPoker", 0, "self", 0.1 * step], ["KuhnPoker", 1, "self", -0.1 * step]]
    made = state(step, asynchronous=True, in_flight=[[step, 1, None]], baselines={"values": values})
    members = [asdict(Member(name, int(name[-2:]), points=1.0 + step)) for name in MEMBERS]
    made["league"]["pool"] = {"members": members, "newest": -1}
    write_state(folder, {**made, "manifest": True})
    for name in ("actor/huggingface", "transfer_queue/simple_storage", REFERENCE):
        (folder / name).mkdir(parents=True)
    for number, name in enumerate(("model", "optim", "extra_state")):
        file = folder / "actor" / f"{name}_world_size_1_rank_0.pt"
        torch.save({"a": torch.full((50,), float(step + number)), "lr": 0.1 * step, "n": "text"}, file)
    torch.save({"index": step}, folder / "data.pt")
    torch.save({"a": torch.full((50,), -float(step))}, reference_file(folder / REFERENCE, 1, 0))
    (folder / "actor" / "fsdp_config.json").write_text('{"world_size": 1, "FSDP_version": 2}')
    (folder / "actor" / "lora_train_meta.json").write_text(json.dumps({"r": 4, "lora_alpha": 10 + step}))
    (folder / "actor" / "huggingface" / "config.json").write_text(json.dumps({"hidden_size": 60 + step}))
    for name in ("metadata.json", "controller_state.pkl", "simple_storage/su_0.pkl"):
        (folder / "transfer_queue" / name).write_bytes(f"games in flight of step {step}, {name}".encode())
    pool.save_into(folder, MEMBERS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("whole")
    pool, checkpoints = PoolFolder(run / "pool"), CheckpointFolder(run / "checkpoints", 1)
    for number, name in enumerate(MEMBERS):
        with pool.writing(name) as place:
            save_file({"a": torch.full((20,), float(number))}, place / "adapter_model.safetensors")
            (place / "adapter_config.json").write_text(json.dumps({"r": 4, "lora_alpha": 8 + number}))
    for step in STEPS:
        with checkpoints.saving(step) as unfinished:
            fill(unfinished / f"global_step_{step}", step, pool)
    return run


def content(folder: Path) -> dict[str, str]:
    """What a run would read of a checkpoint."""
    found = {}
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        name = str(file.relative_to(folder))
        if file.suffix == ".pt":
            found[name] = str({k: str(v) for k, v in torch.load(file, weights_only=True).items()})
        elif file.suffix == ".safetensors":
            found[name] = str({key: value.tolist() for key, value in load_file(file).items()})
        elif file.name != MANIFEST:
            found[name] = str(file.read_bytes())
    return found


def flip(file: Path, other: Path, draw: random.Random) -> None:
    data = bytearray(file.read_bytes())
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
    file.write_bytes(data)


def digit(file: Path, other: Path, draw: random.Random) -> None:
    data = bytearray(file.read_bytes())
    places = [place for place, byte in enumerate(data) if 48 <= byte < 58]
    if places:
        data[place] = 48 + (data[place := draw.choice(places)] - 47) % 10
    file.write_bytes(data)


def swap(file: Path, other: Path, draw: random.Random) -> None:
    shutil.copyfile(other, file)


def dangle(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def link(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to(other)


def lead_to_a_folder(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.symlink_to(draw.choice([other.parent, Path("/")]))


def folder(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()
    file.mkdir()


def cut(file: Path, other: Path, draw: random.Random) -> None:
    os.truncate(file, draw.randrange(file.stat().st_size))


def remove(file: Path, other: Path, draw: random.Random) -> None:
    file.unlink()


def swap_folders(file: Path, other: Path, draw: random.Random) -> None:
    shutil.rmtree(file.parent)
    shutil.copytree(other.parent, file.parent)


def add(file: Path, other: Path, draw: random.Random) -> None:
    (file.parent / f"more{file.suffix}").write_bytes(other.read_bytes())


KINDS = (flip, flip, flip, digit, digit, swap, dangle, link, lead_to_a_folder, folder, cut, remove, swap_folders, add)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.full) for part in (1, 2, 3))])
def test_whatever_is_changed_is_refused_by_name_or_changes_nothing(whole: Path, tmp_path: Path, part: int) -> None:
    for seed in range(part * 100, part * 100 + 100):
        draw = random.Random(seed)
        run = tmp_path / "run"
        shutil.copytree(whole, run)
        latest, before = run / "checkpoints/global_step_6", run / "checkpoints/global_step_4"
        names = sorted(str(file.relative_to(latest)) for file in latest.rglob("*") if file.is_file())
        name = draw.choice(names)
        kind = draw.choice(KINDS)
        if "pool/" in name and draw.random() < 0.5:  # another member's
            other = latest / name.replace(MEMBERS[0], "x").replace(MEMBERS[1], MEMBERS[0]).replace("x", MEMBERS[1])
        else:
            other = before / name
        if kind is swap_folders and "/" not in name:
            kind = remove
        kind(latest / name, other, draw)
        told = f"seed {seed}: {kind.__name__} {name}"
        try:
            assert check_resumable(run / "checkpoints", 1) == 6, told
            assert not [line for line in changed(latest)], told
        except BrokenCheckpoint as error:
            # a folder of files that is swapped is named by one of them
            assert Path(name).name in str(error) or str(Path(name).parent) in str(error), f"{told}: {error}"
        else:
            assert content(latest).items() >= content(whole / "checkpoints/global_step_6").items(), told
        shutil.rmtree(run)


@pytest.mark.parametrize("text", ["[]", "{}", '{"adapter_model.safetensors": "abc"}', '{"a": 1}', "", "{"])
def test_a_members_manifest_that_is_not_ours_is_damage(whole: Path, tmp_path: Path, text: str) -> None:
    member = shutil.copytree(whole / "pool" / MEMBERS[0], tmp_path / "member")
    assert not changed_member(member)
    (member / MANIFEST).write_text(text)
    assert changed_member(member)


def test_a_checkpoint_of_version_010_has_the_checks_that_there_were(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole / "checkpoints", tmp_path / "checkpoints")
    made = json.loads((run / "global_step_6/spiral.json").read_text())
    del made["manifest"]
    (run / "global_step_6/spiral.json").write_text(json.dumps(made))
    (run / "global_step_6" / MANIFEST).unlink()
    write_manifest(run / "global_step_6" / "transfer_queue")
    assert check_resumable(run, 1) == 6
    flip(run / "global_step_6/actor/model_world_size_1_rank_0.pt", run, random.Random(1))
    with pytest.raises(BrokenCheckpoint, match=r"damaged: actor/model_world_size_1_rank_0\.pt"):
        check_resumable(run, 1)


def test_the_manifest_cannot_be_taken_away(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole / "checkpoints", tmp_path / "checkpoints")
    (run / "global_step_6" / MANIFEST).unlink()
    with pytest.raises(BrokenCheckpoint, match=MANIFEST):
        check_resumable(run, 1)


def test_a_tracker_that_leads_nowhere_is_refused(whole: Path, tmp_path: Path) -> None:
    run = shutil.copytree(whole / "checkpoints", tmp_path / "checkpoints")
    for damage in (lambda file: file.symlink_to("nowhere"), Path.mkdir):
        (run / TRACKER).unlink(missing_ok=True)
        damage(run / TRACKER)
        with pytest.raises(BrokenCheckpoint, match=TRACKER):
            check_resumable(run, 1)


def test_sealing_again_gives_the_same(whole: Path, tmp_path: Path) -> None:
    one = shutil.copytree(whole / "checkpoints/global_step_4", tmp_path / "global_step_4")
    before = (one / MANIFEST).read_text()
    seal(one)
    assert (one / MANIFEST).read_text() == before
    name_latest(tmp_path, 4)
    assert check_resumable(tmp_path, 1) == 4
