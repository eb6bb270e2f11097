"""The core trains alone: a copy of ``recipe/`` without ``lab/`` and ``spin/``."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from recipe.spiral.storage.checkpoints import latest

from .conftest import ROOT, Run

pytestmark = pytest.mark.e2e
OVERRIDES = (
    *("model=tiny", "seed=5", "data.train_batch_size=16", "trainer.total_training_steps=2", "trainer.save_freq=1"),
    *("trainer.test_freq=-1", "trainer.val_before_train=false", "trainer.logger=[file]"),
    *("fsp.enabled=true", "fsp.update_interval=1"),
)
MISSING = "note: extensions: recipe.spiral.{}.extension is not there; the run goes without what it adds"

#: What the lab brings; the last line names it where a command line asks for it.
NOT_THERE = ("opponents=[{kind: perfect, share: 0.1}]", "validation.opponents=[perfect]")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    left_out = shutil.ignore_patterns("__pycache__", "lab", "spin")
    shutil.copytree(ROOT / "recipe" / "spiral", tmp_path / "tree" / "recipe" / "spiral", ignore=left_out)
    return tmp_path / "tree"


def call(tree: Path, module: str, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    command = [sys.executable, "-m", f"recipe.spiral.{module}", *arguments]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_the_core_trains_resumes_and_exports_without_the_others(tree: Path, runs: list[Run]) -> None:
    for given in NOT_THERE:
        status, said = call(tree, "main_spiral", "model=tiny", given)
        assert status == 2 and "perfect" in said.splitlines()[-1]
    folder, alone = tree / "run", {"PYTHONPATH": str(tree)}
    killed = Run(folder, *OVERRIDES, cwd=tree, environment=alone)
    runs.append(killed)
    killed.wait_for(r"^step 1/2 ")
    while latest(folder / "checkpoints") is None:
        killed.wait_for(r"^step 1/2 ")
    killed.signal(signal.SIGKILL)
    killed.wait()
    resumed = Run(folder, *OVERRIDES, cwd=tree, environment=alone)
    runs.append(resumed)
    assert resumed.wait() == 0, resumed.output[-4000:]
    assert MISSING.format("lab") in resumed.output and latest(folder / "checkpoints") == 2
    assert {member.name for member in (folder / "pool").iterdir()} >= {"step_000000", "step_000001", "step_000002"}
    assert call(tree, "export", str(folder), str(tree / "exported"))[0] == 0
    assert (tree / "exported" / "model.safetensors").is_file()
