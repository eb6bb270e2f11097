"""A checkpoint is whole or not there: killed at any moment, on a full disk, beside others, over an old one."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from recipe.spiral.processes.causes import cause_of
from recipe.spiral.processes.run_log import LOG
from recipe.spiral.storage import disk, saving
from recipe.spiral.storage.checkpoints import (
    TRACKER,
    UNFINISHED,
    BrokenCheckpoint,
    check_resumable,
    latest,
    read_state,
    steps,
    write_state,
)
from recipe.spiral.storage.disk import BrokenOff, DiskFull, is_full
from recipe.spiral.storage.metrics_file import METRICS, read_metrics
from recipe.spiral.storage.saving import CheckpointFolder
from recipe.spiral.training import run_state
from recipe.spiral.training.console import Console
from tests.fake_verl import Verl, trainer
from tests.made import record, turn
from tests.storage.test_checkpoints import save, state


class Killed(BaseException):
    """Ends a test's save where a kill would."""


def checkpoint(folder: CheckpointFolder, step: int) -> None:
    with folder.saving(step) as unfinished:
        save(unfinished, step)


def test_checkpoints_are_named_and_old_ones_go(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path / "checkpoints", 1, keep=2)
    for step in (1, 2, 3, 4):
        checkpoint(folder, step)
        assert check_resumable(folder.path, 1) == step
        assert steps(folder.path) == [s for s in (step - 1, step) if s > 0]
    assert not (folder.path / UNFINISHED).exists()


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (3, [3, 4, 5]), (None, [1, 2, 3, 4, 5]), (9, [1, 2, 3, 4, 5])])
def test_as_many_stay_as_are_to_stay(tmp_path: Path, keep: int | None, left: list[int]) -> None:
    for step in (1, 2, 3, 4, 5):
        checkpoint(CheckpointFolder(tmp_path, 1, keep), step)  # also those of earlier starts count
    assert steps(tmp_path) == left


def test_the_one_that_the_run_was_told_to_go_on_from_stays(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4):
        checkpoint(CheckpointFolder(tmp_path, 1, 2, spare=tmp_path / "global_step_1"), step)
    assert steps(tmp_path) == [1, 3, 4]


QUEUE_FILES = ["metadata.json", "controller_state.pkl", "simple_storage/su_0.pkl"]


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


@pytest.mark.parametrize("name", QUEUE_FILES)
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda file: os.truncate(file, 3)])
def test_the_games_in_flight_are_as_they_were_written(
    tmp_path: Path, name: str, damage: Callable[[Path], None]
) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    with folder.saving(3) as unfinished:
        queue = save(unfinished, 3) / "transfer_queue"
        write_state(queue.parent, state(3, asynchronous=True))
        (queue / "simple_storage").mkdir(parents=True)
        for part in QUEUE_FILES:
            (queue / part).write_bytes(b"token ids, log-probabilities")
    assert check_resumable(tmp_path, 1) == 3
    damage(folder.folder(3) / "transfer_queue" / name)
    with pytest.raises(BrokenCheckpoint, match=f"(damaged|missing or cut short): transfer_queue/{name}"):
        check_resumable(tmp_path, 1)


#: What a save does to the disk, one after another.
MOMENTS = ("torn", "flush", "CheckpointFolder._withdraw", "name_latest", "CheckpointFolder._discard", "size", "free")


@pytest.mark.parametrize("keep", [1, 2])
@pytest.mark.parametrize("again", [False, True], ids=["new", "over an old one"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, after: bool, again: bool, keep: int
) -> None:
    folder = CheckpointFolder(tmp_path, 1, keep, spare=tmp_path / "global_step_2")
    for step in (1, 2, 3):
        checkpoint(folder, step)
    new = 3 if again else 4
    owner, _, name = moment.rpartition(".")
    holder: Any = getattr(saving, owner) if owner else saving
    original = getattr(holder, name)

    def killed(*args: Any) -> Any:
        if after:
            original(*args)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(holder, name, killed)
        patch.setattr(CheckpointFolder, "clear", lambda self: None)  # a kill cleans nothing up
        with suppress(Killed):
            checkpoint(folder, new)
    resumed = check_resumable(tmp_path, 1)
    assert resumed is not None and resumed >= 2
    assert read_state(tmp_path / f"global_step_{resumed}") == state(resumed)
    again_folder = CheckpointFolder(tmp_path, 1, keep)
    again_folder.clear()
    checkpoint(again_folder, 5)
    assert check_resumable(tmp_path, 1) == 5
    assert not (tmp_path / UNFINISHED).exists()
    assert len(steps(tmp_path)) <= keep


def test_a_kill_inside_verls_part_is_cleared_away(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, 1, keep=2)
    checkpoint(folder, 1)
    save(tmp_path / UNFINISHED, 2)
    (tmp_path / UNFINISHED / "global_step_2/actor/model_world_size_1_rank_0.pt").write_bytes(b"PK half")
    assert (check_resumable(tmp_path, 1), steps(tmp_path)) == (1, [1])
    checkpoint(folder, 2)
    assert (check_resumable(tmp_path, 1), steps(tmp_path)) == (2, [1, 2])
    assert not (tmp_path / UNFINISHED).exists()


def test_what_cannot_be_read_back_is_no_checkpoint(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, 1)
    checkpoint(folder, 1)
    with pytest.raises(BrokenCheckpoint, match=r"step 2: data\.pt could not be read back"), folder.saving(2) as place:
        (save(place, 2) / "data.pt").write_bytes(b"PK half")
    assert (latest(tmp_path), steps(tmp_path)) == (1, [1])


def test_a_checkpoint_without_the_shards_of_another_machine_is_none(tmp_path: Path) -> None:
    with (
        pytest.raises(BrokenCheckpoint, match=r"model_world_size_2_rank_1\.pt, .* must be a folder that all machines"),
        CheckpointFolder(tmp_path, 2).saving(1) as place,
    ):
        for shard in (save(place, 1, ranks=2) / "actor").glob("*_rank_1.pt"):
            shard.unlink()
    assert (latest(tmp_path), steps(tmp_path)) == (None, [])


def test_a_checkpoint_that_will_not_fit_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = CheckpointFolder(tmp_path, 1, keep=2)
    checkpoint(folder, 1)
    assert folder.shortage() is None
    monkeypatch.setattr(saving, "free", lambda path: 1000)
    assert str(folder.shortage()).startswith("the disk is nearly full: a checkpoint takes ")
    with pytest.raises(DiskFull, match=r"the checkpoint of step 2 could not be written .* and 1e-06 GB are free"):
        checkpoint(folder, 2)
    assert steps(tmp_path) == [1]


# -- full disks --------------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Of 1 MB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        pytest.skip("no right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True, timeout=10)


def fill(place: Path, leave: int = 0) -> Path:
    """Take the room there is, but for ``leave`` bytes."""
    filler = place / "filler"
    with filler.open("wb", buffering=0) as out:
        while (room := disk.free(place) - leave) >= 4096:
            out.write(bytes(min(room, 1 << 16) // 4096 * 4096))
    return filler


@pytest.mark.parametrize("tensors", [1, 40])
def test_torchs_error_is_known_for_what_it_is(small_disk: Path, tensors: int) -> None:
    fill(small_disk, leave=8192)
    with pytest.raises((OSError, RuntimeError)) as error:
        torch.save([torch.zeros(5000) for _ in range(tensors)], small_disk / "model.pt")
    assert is_full(error.value)


@pytest.mark.parametrize(
    ("error", "full"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), True),
        (OSError(errno.EDQUOT, os.strerror(errno.EDQUOT)), True),
        (RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 975616 vs 975568"), True),
        (RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"), True),
        (OSError(errno.EACCES, os.strerror(errno.EACCES)), False),
        (RuntimeError("CUDA out of memory"), False),
        (ValueError("unexpected pos 1 vs 2"), False),
    ],
    ids=str,
)
def test_a_full_disk_is_told_from_other_errors(error: Exception, full: bool) -> None:
    assert is_full(error) is full
    try:
        try:
            raise error
        except Exception as inner:
            raise KeyError("later") from inner
    except KeyError as outer:
        assert is_full(outer) is full


def test_the_last_line_says_that_the_disk_is_full() -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert cause_of(error) == (
        "the disk is full: OSError: [Errno 28] No space left on device; free some space and start again to go on from "
        "the last checkpoint"
    )
    assert cause_of(DiskFull("the disk is full: ...")) == "the disk is full: ..."


def test_rays_error_from_a_worker_is_a_full_disk_too() -> None:
    from ray.exceptions import RayTaskError

    inner = RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 975616 vs 975568")
    error = RayTaskError("save_checkpoint", "Traceback ...", inner).as_instanceof_cause()
    assert is_full(error)
    full = RayTaskError("fit", "Traceback ...", DiskFull("the disk is full: ...")).as_instanceof_cause()
    assert cause_of(full) == "the disk is full: ..."


def test_a_save_on_a_full_disk_leaves_the_one_before(small_disk: Path) -> None:
    folder = CheckpointFolder(small_disk / "checkpoints", 1, keep=2)
    checkpoint(folder, 1)
    filler = fill(small_disk, leave=100_000)
    with pytest.raises(BrokenOff, match="the checkpoint of step 2 could not"), folder.saving(2) as place:
        torch.save([torch.zeros(5000) for _ in range(40)], save(place, 2) / "data.pt")
    assert (check_resumable(folder.path, 1), steps(folder.path)) == (1, [1])
    assert not (folder.path / UNFINISHED).exists(), "it would keep the disk full"
    filler.unlink()
    checkpoint(folder, 2)
    assert check_resumable(folder.path, 1) == 2


def test_lines_wait_while_the_disk_is_full(small_disk: Path) -> None:
    console = Console(small_disk)
    console.say("before")
    filler = fill(small_disk)
    long = "x" * 9000
    console.say(long)
    console.say("meanwhile")
    assert (small_disk / LOG).read_text().startswith("before\n")
    assert (small_disk / LOG).read_text().endswith("\n"), "no half line"
    filler.unlink()
    console.say("after")
    assert (small_disk / LOG).read_text().splitlines() == ["before", long, "meanwhile", "after"]


# -- in a run ----------------------------------------------------------------------------------------------------------


class Saves(Verl):
    """Writes what verl writes, where verl writes it; ``full``: the steps at which the disk is full."""

    full: tuple[int, ...] = ()

    def _save_checkpoint(self) -> None:
        self.done.append(f"save {self.global_steps}")
        place = Path(self.config.trainer.default_local_dir)
        folder = place / f"global_step_{self.global_steps}"
        state = (folder / "spiral.json").read_text()
        (folder / "spiral.json").unlink()
        save(place, self.global_steps)
        (folder / "spiral.json").write_text(state)
        if self.global_steps in self.full:
            raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 9 vs 8")
        self.checkpoint_callback.on_save(trainer=self, global_step=self.global_steps, checkpoint_dir=str(folder))


class Callback:
    def __init__(self) -> None:
        self.saved: list[str] = []

    def on_save(self, checkpoint_dir: str, **kwargs: Any) -> None:
        assert Path(checkpoint_dir).is_dir()
        self.saved.append(checkpoint_dir)


RUN = ("trainer.total_training_steps=6", "trainer.save_freq=2", "trainer.test_freq=-1", "records.every=0")


class Plays(Saves):
    """Its steps have a game that takes room on the disk."""

    def step(self, *args: Any) -> Any:
        batch = super().step(*args)
        self.current.records.append(record(0, turns=[turn(0, 0, length=20_000)]))
        return batch


def run(
    monkeypatch: pytest.MonkeyPatch,
    run_dir: Path,
    *overrides: str,
    full: tuple[int, ...] = (),
    verl: Any = Saves,
    **attributes: Any,
) -> Any:
    steps = [{} for _ in range(6)]
    more = {"steps": steps, "full": full, "checkpoint_callback": Callback(), **attributes}
    return trainer(monkeypatch, run_dir, *RUN, *overrides, verl=verl, **more)


def test_a_run_saves_beside_and_calls_back_afterwards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = run(monkeypatch, tmp_path)
    made.fit(SimpleNamespace())
    checkpoints = tmp_path / "checkpoints"
    assert (check_resumable(checkpoints, 1), steps(checkpoints)) == (6, [4, 6])
    assert made.checkpoint_callback.saved == [str(checkpoints / f"global_step_{step}") for step in (2, 4, 6)]
    assert made.config.trainer.default_local_dir == str(checkpoints)
    assert [logged.step for logged, _ in read_metrics(tmp_path / METRICS)] == [1, 2, 3, 4, 5, 6]
    assert sorted(path.name for path in checkpoints.iterdir()) == ["global_step_4", "global_step_6", TRACKER]


def test_stop_ends_the_run_with_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = run(monkeypatch, tmp_path, full=(4,))
    with pytest.raises(DiskFull, match=r"step 4 could not .*; free some space and start again to go on from step 2$"):
        made.fit(SimpleNamespace())
    assert (tmp_path / LOG).read_text().splitlines()[-1].startswith("the disk is full: ")
    assert check_resumable(tmp_path / "checkpoints", 1) == 2


def test_go_on_goes_on_and_tries_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = run(monkeypatch, tmp_path, "checkpoint.on_full_disk=go_on", full=(2, 4))
    seen: list[float] = []
    monkeypatch.setattr(
        made.state.console, "step", lambda step, metrics, seconds: seen.append(metrics["disk/unwritten"])
    )
    made.fit(SimpleNamespace())
    assert seen == [0, 1, 0, 1, 0, 0]
    lines = (tmp_path / LOG).read_text().splitlines()
    assert sum(line.endswith("going on without") for line in lines) == 2
    assert steps(tmp_path / "checkpoints") == [6]
    assert made.checkpoint_callback.saved == [str(tmp_path / "checkpoints/global_step_6")]


def test_several_ranks_do_not_go_on_after_a_save_that_broke_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Those that did not fail wait for the others at a barrier."""
    made = run(monkeypatch, tmp_path, "checkpoint.on_full_disk=go_on", "trainer.n_gpus_per_node=2", full=(2,))
    with pytest.raises(DiskFull, match=r"start again to begin anew$"):
        made.fit(SimpleNamespace())


@pytest.mark.parametrize("on_full", ["stop", "go_on"])
def test_games_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_disk: Path, on_full: str
) -> None:
    overrides = [f"checkpoint.on_full_disk={on_full}", "records.every=1", "trainer.save_freq=-1"]
    made = run(monkeypatch, tmp_path, *overrides, verl=Plays)
    made.state.records.path = small_disk / "games"
    made.state.records.path.mkdir()
    fill(small_disk, leave=8192)
    if on_full == "stop":
        with pytest.raises(DiskFull, match=r"the games of step 1 could not be written to .*begin anew$"):
            made.fit(SimpleNamespace())
    else:
        made.fit(SimpleNamespace())
    assert list(made.state.records.path.iterdir()) == []


@pytest.mark.parametrize("on_full", ["stop", "go_on"])
def test_answers_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_disk: Path, on_full: str
) -> None:
    made = run(monkeypatch, tmp_path, f"checkpoint.on_full_disk={on_full}")
    made.state.answers.path = small_disk / "benchmarks"
    made.state.answers.path.mkdir()
    fill(small_disk, leave=8192)
    monkeypatch.setattr(run_state.channel, "take_answers", lambda keys: {})
    long = {"text": "x" * 20_000}
    judged = SimpleNamespace(questions=SimpleNamespace(judge=lambda answers: ([long], {})))
    if on_full == "stop":
        with pytest.raises(DiskFull, match=r"the answers at step 0 could not be written to .*begin anew$"):
            made.state.judge_answers(0, [], judged)
    else:
        assert made.state.judge_answers(0, [], judged) == {}
    assert list(made.state.answers.path.iterdir()) == []


def test_a_start_removes_only_what_came_after_the_checkpoint_that_it_goes_on_from(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, tmp_path, "records.every=1").fit(SimpleNamespace())
    checkpoint = tmp_path / "checkpoints/global_step_4"
    for how, step, left in (
        (["trainer.resume_mode=disable"], 0, [1, 2, 3, 4, 5, 6]),
        (["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoint}"], 4, [1, 2, 3, 4]),
    ):
        made = run(monkeypatch, tmp_path, *how, global_steps=step)
        made.state.answers.write(6, [])
        made._load_checkpoint()
        assert made.state.records.steps("train") == left
        assert sorted({logged.step for logged, _ in read_metrics(tmp_path / METRICS)}) == left
        assert [file.name for file in made.state.answers.path.iterdir()] == ["step_000006.jsonl"] * (step == 0)
        assert latest(tmp_path / "checkpoints") == left[-1]


def test_a_start_clears_what_a_kill_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = run(monkeypatch, tmp_path)
    save(tmp_path / "checkpoints" / UNFINISHED, 2)
    made._load_checkpoint()
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_a_run_that_goes_back_forgets_later_checkpoints_before_it_removes_what_came_after(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kill before the next save, or amid the removal: the next start must not go on from a step without games."""
    run(monkeypatch, tmp_path, "trainer.max_actor_ckpt_to_keep=null", "records.every=1").fit(SimpleNamespace())
    checkpoints = tmp_path / "checkpoints"
    assert latest(checkpoints) == 6
    games = set((tmp_path / "games").iterdir())

    def killed(step: int) -> None:
        raise Killed

    told = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={checkpoints}/global_step_2"]
    run(monkeypatch, tmp_path, *told, "trainer.val_only=true", global_steps=2)._load_checkpoint()
    assert (latest(checkpoints), set((tmp_path / "games").iterdir())) == (6, games), "a validation alone takes nothing"
    back = run(monkeypatch, tmp_path, *told, global_steps=2)
    with monkeypatch.context() as amid, pytest.raises(Killed):
        amid.setattr(back.state.records, "cut_back", killed)
        back._load_checkpoint()
    assert check_resumable(checkpoints, 1) == 2
    run(monkeypatch, tmp_path, *told, global_steps=2)._load_checkpoint()
    (aside,) = checkpoints.glob("earlier-*")
    assert (steps(checkpoints), steps(aside)) == ([2], [4, 6])
    assert check_resumable(checkpoints, 1, reached=6) == 2, "killed when it had come to step 6 again, without a save"


def test_a_fork_names_no_checkpoint_before_it_has_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    run(monkeypatch, tmp_path / "first").fit(SimpleNamespace())
    other = tmp_path / "first/checkpoints/global_step_6"
    told = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={other}"]
    fork = run(monkeypatch, tmp_path / "fork", *told, global_steps=6)
    fork._load_checkpoint()
    assert latest(tmp_path / "fork/checkpoints") is None


def test_a_fork_says_in_each_checkpoint_where_its_records_begin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run(monkeypatch, tmp_path / "first").fit(SimpleNamespace())
    saved = tmp_path / "first/checkpoints/global_step_4"
    told, other = ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={saved}"], tmp_path / "other"

    def begins(folder: Path, step: int, *how: str) -> int:
        made = run(monkeypatch, folder, *how, global_steps=step)
        made._load_checkpoint()
        made.fit(SimpleNamespace())
        return int(read_state(folder / "checkpoints/global_step_6")["records_after"])

    assert read_state(saved)["records_after"] == 0
    assert begins(tmp_path / "first", 4, *told) == 0, "it went back to a checkpoint of its own"
    assert begins(other, 4, *told) == 4
    again = run(monkeypatch, other, "trainer.total_training_steps=8", global_steps=6)
    again._load_checkpoint()
    again.fit(SimpleNamespace())
    assert read_state(other / "checkpoints/global_step_8")["records_after"] == 4, "the start after it knows as well"
    assert begins(other, 0, "trainer.resume_mode=disable") == 0


@pytest.mark.parametrize(("test_freq", "before"), [(4, False), (4, True), (-1, False)])
def test_a_last_validation_that_a_kill_ended_is_made_up_for_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, test_freq: int, before: bool
) -> None:
    """The last step has its checkpoint, so that no step is left for verl's loop."""
    told = [f"trainer.test_freq={test_freq}", f"trainer.val_before_train={before}"]
    killed = run(monkeypatch, tmp_path, *told)

    def at_the_end() -> None:
        if killed.global_steps == 6:
            raise Killed

    killed.on_validate_begin = at_the_end
    with suppress(Killed):
        killed.fit(SimpleNamespace())
    for made_up_for in (["validate 6"] if test_freq > 0 else [], ["validate 6"] if before else []):
        again = run(monkeypatch, tmp_path, *told, global_steps=6)
        again._load_checkpoint()
        again.fit(SimpleNamespace())
        assert again.done == [*made_up_for, "end"]
    steps = [logged.step for logged, _ in read_metrics(tmp_path / METRICS) if "val-core/win" in logged.metrics]
    assert steps.count(6) == (test_freq > 0) + before
