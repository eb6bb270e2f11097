"""Whether a checkpoint is whole, and what a person is told when it is not."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from recipe.spiral.storage.checkpoints import (
    REFERENCE,
    STATE_FILE,
    TRACKER,
    UNFINISHED,
    BrokenCheckpoint,
    changed,
    check_resumable,
    latest,
    missing_parts,
    name_latest,
    ranks_saved,
    read_state,
    reference_file,
    seal,
    steps,
    write_state,
)


def archive(file: Path, size: int = 100) -> None:
    """A file of the kind that torch writes."""
    with zipfile.ZipFile(file, "w") as out:
        out.writestr("archive/data/0", bytes(size))


def state(step: int, **more: Any) -> dict[str, Any]:
    """SPIRAL's part of a checkpoint in sync mode, with nothing in it."""
    known = {
        "step": step,
        "seed": 0,
        "critic": False,
        "torch": "2",
        "batch_unit": "games",
        "games": "[TicTacToe, KuhnPoker]",
    }
    moves = {"asynchronous": False, "records_after": 0, "in_flight": [], "game_length": {"games": 0, "rows": 0}}
    guard = {"series": {}, "streaks": [], "active": []}
    matchmaker = {"owed": {}, "roles": {}, "step": 0, "used": {}}
    league = {"pool": None, "matchmaker": matchmaker, "tokens": {}}
    return {**known, **moves, "baselines": {"values": []}, "guard": guard, "league": league, **more}


def save(checkpoints: Path, step: int, ranks: int = 1, latest: bool = True) -> Path:
    """A checkpoint with the files that verl's FSDP workers and ours write."""
    folder = checkpoints / f"global_step_{step}"
    write_state(folder, state(step))
    archive(folder / "data.pt")
    (folder / "actor").mkdir()
    for kind in ("model", "optim", "extra_state"):
        for rank in range(ranks):
            archive(folder / "actor" / f"{kind}_world_size_{ranks}_rank_{rank}.pt")
    if latest:
        (checkpoints / TRACKER).write_text(str(step))
    return folder


def test_a_run_goes_on_from_what_the_tracker_names(tmp_path: Path) -> None:
    save(tmp_path, 10)
    save(tmp_path, 20)
    assert check_resumable(tmp_path, 1) == 20
    assert steps(tmp_path) == [10, 20]


def test_a_folder_without_checkpoints_is_a_fresh_start(tmp_path: Path) -> None:
    assert check_resumable(tmp_path / "none", 1) is None
    assert check_resumable(tmp_path, 1) is None


def test_a_kill_inside_a_save_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    """The tracker names the new step only when all else is written."""
    save(tmp_path, 10)
    half = save(tmp_path, 20, latest=False)
    (half / "actor" / "optim_world_size_1_rank_0.pt").unlink()
    assert check_resumable(tmp_path, 1) == 10


def test_a_kill_inside_the_first_save_leaves_what_is_whole(tmp_path: Path) -> None:
    """Between the two moments in which it gets its name and is named."""
    half = save(tmp_path, 10, latest=False)
    (tmp_path / UNFINISHED).mkdir()
    assert check_resumable(tmp_path, 1) == latest(tmp_path) == 10
    (half / "data.pt").unlink()
    assert check_resumable(tmp_path, 1) is None, "verl by itself may have written half of one"


def test_a_tracker_that_names_an_older_step_takes_no_games_away(tmp_path: Path) -> None:
    save(tmp_path, 10)
    newer = save(tmp_path, 20)
    name_latest(tmp_path, 10)
    assert check_resumable(tmp_path, 1, reached=19) == 10, "a run that went back, whose games of step 20 are gone"
    with pytest.raises(BrokenCheckpoint, match=r"names step 10, and global_step_20 .*_path=.*_20; .*_path=.*_10$"):
        check_resumable(tmp_path, 1, reached=20)
    (tmp_path / UNFINISHED).mkdir()
    assert check_resumable(tmp_path, 1, reached=20) == 10, "a kill inside a save"
    (tmp_path / UNFINISHED).rmdir()
    (newer / "data.pt").unlink()
    assert check_resumable(tmp_path, 1, reached=20) == 10, "the newer one is damaged"


@pytest.mark.parametrize(
    "text", [None, "", "  ", "1x", "-1", "1_0", "\udcff", "\u0663", "9" * 5000, "a link", "a folder"]
)
def test_a_checkpoint_that_nothing_names_is_not_left_behind(tmp_path: Path, text: str | None) -> None:
    save(tmp_path, 9)
    save(tmp_path, 10, ranks=2)
    (save(tmp_path, 20) / STATE_FILE).unlink()
    tracker = tmp_path / TRACKER
    tracker.unlink()
    if text == "a link":
        tracker.symlink_to(tmp_path / "nowhere")
    elif text == "a folder":
        tracker.mkdir()
    elif text is not None:
        tracker.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert latest(tmp_path) is None
    there = sorted(tmp_path.rglob("*"))
    mend = (
        rf"{tracker}: names no checkpoint, and global_step_10 .* write 10 into that file; or start afresh with trainer"
    )
    with pytest.raises(BrokenCheckpoint, match=mend):
        check_resumable(tmp_path, 1)
    assert sorted(tmp_path.rglob("*")) == there


@pytest.mark.parametrize("folder", [False, True])
def test_an_unreadable_tracker_alone_says_how_to_start_afresh(tmp_path: Path, folder: bool) -> None:
    (tmp_path / TRACKER).mkdir() if folder else (tmp_path / TRACKER).write_text("")
    with pytest.raises(
        BrokenCheckpoint, match=r"none .* is whole: start afresh with trainer\.resume_mode=disable, or "
    ):
        check_resumable(tmp_path, 1)


def test_a_flipped_bit_is_found_before_weights_are_loaded(tmp_path: Path) -> None:
    """torch does not look at its archive's checksums: in one such file a weight had become 3.1e37."""
    older, folder = save(tmp_path, 10), save(tmp_path, 20)
    for part in ("actor/model_world_size_1_rank_0.pt", "actor/optim_world_size_1_rank_0.pt", "data.pt"):
        whole = (folder / part).read_bytes()
        torch.save({"weight": torch.zeros(10_000)}, folder / part)
        assert changed(folder) == [] == missing_parts(folder, 1)
        flipped = bytearray((folder / part).read_bytes())
        flipped[len(flipped) // 2] ^= 4
        (folder / part).write_bytes(flipped)
        torch.load(folder / part)
        assert missing_parts(folder, 1) == [], "a look reads no weights"
        with pytest.raises(BrokenCheckpoint, match=rf"damaged: {part}\. Restore it, or go on from step 10 .*{older}$"):
            check_resumable(tmp_path, 1)
        (folder / part).write_bytes(whole)
    (tmp_path / TRACKER).write_text("")
    (folder / part).write_bytes(flipped)
    with pytest.raises(BrokenCheckpoint, match="write 10 into that file"):  # not 20
        check_resumable(tmp_path, 1)


def test_a_damaged_older_checkpoint_is_not_named(tmp_path: Path) -> None:
    for step in (10, 20):
        flipped = bytearray((folder := save(tmp_path, step)).joinpath("data.pt").read_bytes())
        flipped[60] ^= 1
        (folder / "data.pt").write_bytes(flipped)
    with pytest.raises(BrokenCheckpoint, match=r"damaged: data\.pt\. Restore it, or start afresh"):
        check_resumable(tmp_path, 1)


@pytest.mark.parametrize(
    "part",
    [
        STATE_FILE,
        "data.pt",
        "actor/model_world_size_2_rank_1.pt",
        "actor/optim_world_size_2_rank_0.pt",
        "actor/extra_state_world_size_2_rank_1.pt",
    ],
)
@pytest.mark.parametrize("how", ["gone", "empty", "cut short"])
def test_a_missing_part_is_named(tmp_path: Path, part: str, how: str) -> None:
    folder = save(tmp_path, 10, ranks=2)
    assert missing_parts(folder, 2) == []
    (folder / part).write_bytes((folder / part).read_bytes()[:-1] if how == "cut short" else b"")
    if how == "gone":
        (folder / part).unlink()
    assert missing_parts(folder, 2) == [part]
    with pytest.raises(
        BrokenCheckpoint, match=rf"global_step_10 is not whole \(2 rank\(s\)\): missing or cut short: {part}\. Restore"
    ):
        check_resumable(tmp_path, 2)


def test_a_reference_policy_is_whole_or_not_there(tmp_path: Path) -> None:
    """A checkpoint of a run without ref_update_freq has none."""
    folder = save(tmp_path, 10, ranks=2)
    (folder / REFERENCE).mkdir()
    shutil.copy(folder / "data.pt", reference_file(folder / REFERENCE, 2, 0))
    assert missing_parts(folder, 2) == ["ref/model_world_size_2_rank_1.pt"]
    shutil.copy(folder / "data.pt", reference_file(folder / REFERENCE, 2, 1))
    assert missing_parts(folder, 2) == []


def test_a_critic_is_whole_or_not_there(tmp_path: Path) -> None:
    """It is missed where the state, or the run, says that there is one."""
    folder, one = save(tmp_path, 10, ranks=2), "critic/optim_world_size_2_rank_1.pt"
    assert missing_parts(folder, 2) == []
    assert len(missing_parts(folder, 2, critic=True)) == 6
    write_state(folder, state(10, critic=True))
    assert len(missing_parts(folder, 2)) == 6
    shutil.copytree(folder / "actor", folder / "critic")
    assert missing_parts(folder, 2) == missing_parts(folder, 2, critic=True) == []
    (folder / one).unlink()
    assert missing_parts(folder, 2) == missing_parts(folder, 2, critic=True) == [one]
    with pytest.raises(BrokenCheckpoint, match=f"missing or cut short: {one}"):
        check_resumable(tmp_path, 2)
    (folder / one).write_bytes(b"PK")
    assert missing_parts(folder, 2) == [one]


def test_the_message_names_the_mend_when_there_is_an_older_one(tmp_path: Path) -> None:
    older = save(tmp_path, 10)
    shutil.rmtree(save(tmp_path, 20) / "actor")
    with pytest.raises(BrokenCheckpoint) as error:
        check_resumable(tmp_path, 1)
    message = str(error.value)
    assert f"go on from step 10 with trainer.resume_mode=resume_path trainer.resume_from_path={older}" in message


def test_the_message_names_the_mend_when_there_is_none(tmp_path: Path) -> None:
    shutil.rmtree(save(tmp_path, 20))
    with pytest.raises(
        BrokenCheckpoint, match=r"cut short: spiral\.json, data\.pt, .* \.\.\..*or start afresh with trainer\.resume"
    ):
        check_resumable(tmp_path, 1)


def test_a_checkpoint_of_another_number_of_ranks_is_refused_with_both(tmp_path: Path) -> None:
    folder = save(tmp_path, 10, ranks=2)
    with pytest.raises(
        BrokenCheckpoint,
        match=rf"^trainer\.n_gpus_per_node x trainer\.nnodes=4: cannot go on from {folder}, .* by 2 rank",
    ):
        check_resumable(tmp_path, 4)


@pytest.mark.parametrize(("noted", "ranks"), [("1e999", 2), ("-1", 1), ("4", 4), ("null", 2), ("[" * 100_000, 2)])
def test_a_note_of_any_number_of_ranks_is_read(tmp_path: Path, noted: str, ranks: int) -> None:
    folder = save(tmp_path, 10, ranks=2)
    (folder / "actor" / "fsdp_config.json").write_text(f'{{"world_size": {noted}}}')
    assert ranks_saved(folder) == ranks and (ranks == 2) == (not missing_parts(folder, ranks_saved(folder)))


def test_state_survives(tmp_path: Path) -> None:
    state = {"step": 3, "baselines": {"values": [["TicTacToe", 0, "self", 0.1 + 0.2]]}}
    write_state(tmp_path / "global_step_3", state)
    assert read_state(tmp_path / "global_step_3") == state
    write_state(tmp_path / "global_step_3", {"step": 4})
    assert read_state(tmp_path / "global_step_3") == {"step": 4}


def test_state_that_cannot_be_written_leaves_the_earlier(tmp_path: Path) -> None:
    write_state(tmp_path, {"step": 3})
    with pytest.raises(TypeError):
        write_state(tmp_path, {"step": object()})
    assert read_state(tmp_path) == {"step": 3}


@pytest.mark.parametrize("text", [None, "", '{"step": ', "[]", "null", "7", "[" * 100_000, '{"a": "\udc80"}'])
def test_unreadable_state_is_named(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / STATE_FILE).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(BrokenCheckpoint, match=rf"{STATE_FILE}: "):
        read_state(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", '{"step": '])
def test_an_older_checkpoint_is_named_where_the_state_cannot_be_read(tmp_path: Path, text: str) -> None:
    older, folder = save(tmp_path, 10), save(tmp_path, 20)
    (folder / STATE_FILE).write_text(text)
    with pytest.raises(
        BrokenCheckpoint, match=rf"cut short: {STATE_FILE}\. Restore it, or go on from step 10 .*{older}$"
    ):
        check_resumable(tmp_path, 1)


@pytest.mark.parametrize(("text", "what"), [("{}", "is of step None"), (json.dumps({"step": 10}), "is of step 10")])
def test_an_older_checkpoint_is_named_where_the_state_is_of_another_step(tmp_path: Path, text: str, what: str) -> None:
    save(tmp_path, 10)
    (save(tmp_path, 20) / STATE_FILE).write_text(text)
    with pytest.raises(
        BrokenCheckpoint, match=rf"damaged: {STATE_FILE}: {what}\. .*go on from step 10 with "
    ) as raised:
        check_resumable(tmp_path, 1)
    assert "\n" not in str(raised.value)
    (tmp_path / TRACKER).write_text("torn")
    with pytest.raises(BrokenCheckpoint, match="write 10 into that file"):
        check_resumable(tmp_path, 1)


@pytest.mark.parametrize(
    "change",
    [{"baselines": {"values": [["Nim", 0, "self", 1]]}}, {"guard": {}}, {"records_after": 1}, {"manifest": False}],
)
def test_a_changed_state_is_damage(tmp_path: Path, change: dict[str, Any]) -> None:
    folder = save(tmp_path, 20)
    write_state(folder, state(20, manifest=True))
    seal(folder)
    assert check_resumable(tmp_path, 1) == 20
    write_state(folder, {**state(20, manifest=True), **change})
    with pytest.raises(BrokenCheckpoint, match=rf"damaged: {STATE_FILE}\. Restore it"):
        check_resumable(tmp_path, 1)


def test_the_tracker_names_the_latest(tmp_path: Path) -> None:
    assert latest(tmp_path) is None
    name_latest(tmp_path, 12)
    assert latest(tmp_path) == 12
    assert [path.name for path in tmp_path.iterdir()] == [TRACKER]
    (tmp_path / TRACKER).write_text("")
    assert latest(tmp_path) is None
