"""A checkpoint is whole or not there: killed at any moment, beside others, over an old one, on a stubborn disk; and a
run goes on from the latest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from recipe.spiral.lab.record_folder import RecordFolder
from recipe.spiral.storage import checkpoints as storage
from recipe.spiral.storage import disk
from recipe.spiral.storage.checkpoints import (
    STATE_FILE,
    TRACKER,
    CheckpointFolder,
    latest,
    name_latest,
    read_whole,
    seal,
    steps,
    write_state,
)
from recipe.spiral.storage.manifest import MANIFEST
from recipe.spiral.storage.run_files import METRICS, read_metrics
from tests.fake_verl import Verl, trainer
from tests.made import record
from tests.opponents.folders import Killed


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without waiting for the disk."""
    monkeypatch.setattr(disk, "_fsync", lambda path: None)


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
    """Or from the last one: a kill between a checkpoint's two names loses nothing."""
    assert latest(tmp_path / "none") is latest(tmp_path) is None
    for step in (10, 20):
        save(tmp_path, step, latest=False)
    assert latest(tmp_path) == 20 and steps(tmp_path) == [10, 20]
    name_latest(tmp_path, 10)
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
    with pytest.raises(ValueError, match="checkpoint"):
        read_whole(folder)


def test_other_forms_are_refused_with_the_version_that_reads_them(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    (folder / STATE_FILE).write_text('{"step": 10}')
    with pytest.raises(ValueError, match=r"version 0\.2\.0 reads it"):
        read_whole(folder)
    (folder / STATE_FILE).write_text('{"format": 9}')
    with pytest.raises(ValueError, match="a later version reads it"):
        read_whole(folder)
    with pytest.raises(ValueError, match="is of step 20"):
        read_whole(save(tmp_path, 20).rename(tmp_path / "global_step_30"))


# -- writing -----------------------------------------------------------------------------------------------------------


def checkpoint(folder: CheckpointFolder, step: int) -> None:
    with folder.saving(step) as new:
        save(new.parent, step)


def goes_on_from(path: Path) -> int:
    """The step that a start goes on from, whose checkpoint is whole."""
    step = latest(path)
    assert step is not None and read_whole(path / f"global_step_{step}")["step"] == step
    return step


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (3, [3, 4, 5]), (None, [1, 2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])])
def test_as_many_stay_as_are_to_stay(tmp_path: Path, keep: int | None, left: list[int]) -> None:
    for step in (1, 2, 3, 4, 5):
        checkpoint(CheckpointFolder(tmp_path, 1, keep), step)  # also those of earlier starts count
        assert goes_on_from(tmp_path) == step
    assert steps(tmp_path) == left and not [*tmp_path.glob(".*")]


#: What a save does to the disk, and whose function it is.
MOMENTS = [(storage, "seal"), (storage, "flush"), (Path, "rename"), (storage, "name_latest"), (shutil, "rmtree")]


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "name"), MOMENTS)
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool, keep: int
) -> None:
    for number in range(4):  # of calls to the function, the one that is killed
        place = tmp_path / str(number)
        folder = CheckpointFolder(place, 1, keep, spare=place / "global_step_2")
        for step in (1, 2, 3):
            checkpoint(folder, step)
        original, done = getattr(owner, name), 0

        def killed(*args: Any, number: int = number, original: Any = original, **more: Any) -> Any:
            nonlocal done
            done += 1
            if done <= number:
                return original(*args, **more)
            if done == number + 1 and after:
                original(*args, **more)
            raise Killed  # and what comes after does nothing, as the process is not there

        with monkeypatch.context() as patch:
            patch.setattr(owner, name, killed)
            with suppress(Killed):
                checkpoint(folder, 4)
        assert goes_on_from(place) >= 2
        after_start = CheckpointFolder(place, 1, keep)
        after_start.clear()
        checkpoint(after_start, 5)
        assert goes_on_from(place) == 5 and len(steps(place)) <= keep
        assert not [*place.glob(".*")]


def test_a_checkpoint_without_the_shards_of_another_machine_is_none(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="rank 1"), CheckpointFolder(tmp_path, 2).saving(1) as new:
        save(new.parent, 1, ranks=2)
        (new / "actor/model_world_size_2_rank_1.pt").unlink()
    assert (latest(tmp_path), [*tmp_path.iterdir()]) == (None, [])


def test_a_disk_that_lets_nothing_go_does_not_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS, on which a file stays that somebody has open, or EBUSY."""
    monkeypatch.setattr(shutil, "rmtree", lambda folder, **more: None)
    said: list[str] = []
    folder = CheckpointFolder(tmp_path, 1, keep=1, say=said.append)
    for step in (1, 2, 3, 3, 4):
        checkpoint(folder, step)
        assert goes_on_from(tmp_path) == step
    assert said and all("could not be removed" in line for line in said)
    monkeypatch.undo()
    folder.clear()
    assert not [*tmp_path.glob(".*")]


def test_going_back_puts_later_ones_aside(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    for step in (1, 2, 3):
        checkpoint(folder, step)
    aside = folder.go_back(1)
    assert goes_on_from(tmp_path) == 1 and steps(tmp_path) == [1]
    assert [read_whole(later)["step"] for later in aside] == [2, 3]


# -- in a run ----------------------------------------------------------------------------------------------------------


class Saves(Verl):
    """Writes what verl writes, where verl writes it."""

    def _save_checkpoint(self) -> None:
        place = Path(self.config.trainer.default_local_dir)
        folder = place / f"global_step_{self.global_steps}"
        written = (folder / "spiral.json").read_text()
        shutil.rmtree(folder)
        save(place, self.global_steps)
        (folder / "spiral.json").write_text(written)
        self.checkpoint_callback.on_save(trainer=self, global_step=self.global_steps, checkpoint_dir=str(folder))


class Callback:
    def __init__(self) -> None:
        self.saved: list[str] = []

    def on_save(self, checkpoint_dir: str, **kwargs: Any) -> None:
        assert Path(checkpoint_dir).is_dir()
        self.saved.append(checkpoint_dir)


RUN = ("trainer.total_training_steps=6", "trainer.save_freq=2", "trainer.test_freq=-1", "records.every=0")


def test_a_run_saves_beside_and_calls_back_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    more: dict[str, Any] = {"steps": [{} for _ in range(6)], "checkpoint_callback": Callback()}
    made = trainer(monkeypatch, tmp_path, *RUN, verl=Saves, **more)
    made.fit(SimpleNamespace())
    checkpoints = tmp_path / "checkpoints"
    assert (goes_on_from(checkpoints), steps(checkpoints)) == (6, [4, 6])
    assert made.checkpoint_callback.saved == [str(checkpoints / f"global_step_{step}") for step in (2, 4, 6)]
    assert made.config.trainer.default_local_dir == str(checkpoints)
    assert [logged.step for logged, _ in read_metrics(tmp_path / METRICS)] == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in checkpoints.iterdir()) == ["global_step_4", "global_step_6", TRACKER]


def test_games_are_on_the_disk_before_the_checkpoint_that_counts_them(tmp_path: Path) -> None:
    """They are written beside the step; an error of that comes with the next call."""
    writer = RecordFolder(tmp_path)
    for step in (1, 2):
        writer.write_beside("train", step, [record(0)])
    writer.wait()
    assert writer.steps("train") == [1, 2]
    writer.write_beside("train", 3, [object()])  # type: ignore[list-item]
    with pytest.raises(AttributeError):
        writer.wait()
    writer.wait()
