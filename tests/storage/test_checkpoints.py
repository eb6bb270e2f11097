"""Which checkpoint a run goes on from, and whether it is whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.storage.checkpoints import (
    STATE_FILE,
    TRACKER,
    BrokenCheckpoint,
    latest,
    name_latest,
    read_whole,
    seal,
    steps,
    write_state,
)
from recipe.spiral.storage.manifest import MANIFEST


def state(step: int, **more: Any) -> dict[str, Any]:
    """SPIRAL's part of a checkpoint in sync mode, with nothing in it."""
    known = {"step": step, "run_dir": "", "ranks": 1, "torch": "2", "settings": {"seed": 0}}
    moves = {"records_after": 0, "in_flight": [], "game_length": {"games": 0, "rows": 0}}

    league = {"pool": None}
    return {**known, **moves, "baselines": {"values": []}, "guard": {}, "league": league, **more}


def save(checkpoints: Path, step: int, ranks: int = 1, latest: bool = True, **more: Any) -> Path:
    """A checkpoint with the files that verl's FSDP workers and ours write. ``more``: of SPIRAL's state."""
    folder = checkpoints / f"global_step_{step}"
    write_state(folder, state(step, ranks=ranks, **more))
    (folder / "data.pt").write_bytes(b"where the dataset is")
    (folder / "actor").mkdir()
    for kind in ("model", "optim", "extra_state"):
        for rank in range(ranks):
            (folder / "actor" / f"{kind}_world_size_{ranks}_rank_{rank}.pt").write_bytes(bytes(100))
    seal(folder)
    if latest:
        (checkpoints / TRACKER).write_text(str(step))
    return folder


def test_a_run_goes_on_from_what_the_tracker_names(tmp_path: Path) -> None:
    assert latest(tmp_path / "none") is latest(tmp_path) is None
    save(tmp_path, 10)
    save(tmp_path, 20)
    assert latest(tmp_path) == 20 and steps(tmp_path) == [10, 20]
    name_latest(tmp_path, 10)
    assert latest(tmp_path) == 10


def test_a_kill_between_a_checkpoints_two_names_loses_nothing(tmp_path: Path) -> None:
    save(tmp_path, 10, latest=False)
    assert latest(tmp_path) == 10


def test_a_whole_checkpoint_gives_its_state(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    assert read_whole(folder) == {"format": 1, **state(10)}
    (folder / "notes.txt").write_text("mine")
    read_whole(folder)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda file: os.truncate(file, 3)])
@pytest.mark.parametrize("name", ["data.pt", "actor/optim_world_size_1_rank_0.pt", STATE_FILE, MANIFEST])
def test_what_is_not_as_it_was_written_is_refused(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = save(tmp_path, 10)
    damage(folder / name)
    with pytest.raises(BrokenCheckpoint):
        read_whole(folder)


def test_other_forms_are_refused_with_the_version_that_reads_them(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    (folder / STATE_FILE).write_text('{"step": 10}')
    with pytest.raises(BrokenCheckpoint, match=r"version 0\.2\.0 reads it"):
        read_whole(folder)
    (folder / STATE_FILE).write_text('{"format": 9}')
    with pytest.raises(BrokenCheckpoint, match="a later version reads it"):
        read_whole(folder)
    with pytest.raises(BrokenCheckpoint, match="is of step 20"):
        read_whole(save(tmp_path, 20).rename(tmp_path / "global_step_30"))
