"""A start neither waits for what a stranger's folder has in place of its files, nor writes where its links lead."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from recipe.spiral.checks import ConfigError, compose

#: What a run, an evaluation or Hydra writes.
FILES = (
    *("config.yaml", "train.log", "metrics.jsonl", "agent_loops.yaml", "in_use.lock", "trackers.json", "failure.txt"),
    *(".hydra/config.yaml", "spiral.log", "games/train_step_000001.jsonl.gz", "evaluation.sqlite"),
)
IN_PLACE: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link": lambda path: path.symlink_to(Path.cwd() / "private"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


def start(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    program, setting = ("eval", "eval_dir") if "sqlite" in str([*folder.iterdir()]) else ("spiral_trainer", "run_dir")
    monkeypatch.setattr(sys, "argv", ["start", f"{setting}={folder}"])
    compose(program)


@pytest.mark.parametrize("kind", IN_PLACE)
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_file_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "private").write_text("mine")
    path = tmp_path / "run" / name
    path.parent.mkdir(parents=True)
    IN_PLACE[kind](path)
    with pytest.raises(ConfigError, match=f"{path}: is a link, a pipe or not what a run has there"):
        start(monkeypatch, tmp_path / "run")
    assert (tmp_path / "private").read_text() == "mine"


@pytest.mark.parametrize("name", ["games", "pool", ".hydra"])
def test_nothing_is_written_or_removed_where_a_folders_link_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path)
    with pytest.raises(ConfigError, match=f"{name}: is a link"):
        start(monkeypatch, tmp_path / "run")


def test_a_folder_that_cannot_be_looked_into_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^run_dir: n+: cannot be used \(File name too long\); give another$"):
        monkeypatch.setattr(sys, "argv", ["start", f"run_dir={'n' * 300}"])
        compose("spiral_trainer")


def test_a_run_that_was_written_is_taken_and_checkpoints_may_lie_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    for name in ("games", "pool/step_000001", "tensorboard", "seed=0,decay=0.9", "earlier-20260101-000000"):
        (run / name).mkdir(parents=True)
    for name in ("config.yaml", "train.log", "stop_requested", "games/val_step_000000.jsonl.gz", "notes"):
        (run / name).touch()
    (run / "checkpoints").symlink_to(tmp_path)
    start(monkeypatch, run)
    start(monkeypatch, run)  # with what Hydra has written now
