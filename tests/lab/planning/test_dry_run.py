"""A dry run says what a run would be, and starts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e


def dry(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recipe.spiral.main_spiral", "dry_run=true", "run_dir=run", *overrides]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=folder, env={**environment, "PYTHONPATH": paths}
    )


def test_it_prints_what_differs_and_the_memory_and_starts_nothing(tmp_path: Path) -> None:
    done = dry(tmp_path, "+experiment=quickstart", "hardware=cpu", "seed=3")
    assert done.returncode == 0, done.stderr
    assert "  seed: 3\n" in done.stdout and "memory of the machine" in done.stdout
    assert not any((tmp_path / "run" / name).exists() for name in ("games", "checkpoints", "train.log"))


def test_without_the_hub_the_file_that_is_missing_is_named(tmp_path: Path) -> None:
    done = dry(tmp_path, "model=hf", "hardware=gpu", "actor_rollout_ref.model.path=Qwen/Qwen3-4B-Base")
    assert done.returncode == 0 and "config.json of Qwen/Qwen3-4B-Base" in done.stdout, done.stderr
