"""The estimate of memory: its parts follow from the model and the ranks, and it warns where it does not fit. A dry run
says what a run would be, and starts nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recipe.spiral.lab.planning import memory
from recipe.spiral.lab.planning.memory import GIB, Size, estimate, table
from tests.made_configs import config

#: Qwen3-4B-Base's.
SIZE = Size(4_022_468_096, 388_956_160, 100_930_816, 36, 2560, 30_720, 151_936, 2_064_384)


def of(tmp_path: Path, *overrides: str) -> Any:
    return config(tmp_path, "trainer.n_gpus_per_node=8", *overrides, hardware="gpu", model="hf")


def test_the_state_is_shared_by_the_ranks(tmp_path: Path) -> None:
    one, eight = (estimate(of(tmp_path, f"trainer.n_gpus_per_node={n}"), SIZE, 80 * GIB)["training"] for n in (1, 8))
    assert sum(one[name] for name in ("weights", "gradients", "optimizer")) == pytest.approx(16 * SIZE.parameters)
    assert eight["optimizer"] == one["optimizer"] / 8 and eight["logits"] == one["logits"]


def test_an_adapter_has_no_gradients_of_the_base(tmp_path: Path) -> None:
    lora = estimate(of(tmp_path, "actor_rollout_ref.model.lora_rank=64"), SIZE, 80 * GIB)["training"]
    assert lora["gradients"] == pytest.approx(4 * 64 * SIZE.adapter / 8)


def test_opponents_take_their_share(tmp_path: Path) -> None:
    playing = estimate(of(tmp_path, "fsp.enabled=true"), SIZE, 80 * GIB)["playing"]
    assert playing["opponents' engines"] == pytest.approx(0.2 * 80 * GIB)
    assert estimate(of(tmp_path), SIZE, 80 * GIB)["playing"]["opponents' engines"] == 0


@pytest.mark.parametrize(("gib", "warned"), [(80, False), (16, True)])
def test_what_does_not_fit_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gib: int, warned: bool) -> None:
    monkeypatch.setattr(memory, "gpu_memory", lambda: gib * GIB)
    lines = table(of(tmp_path), SIZE)
    assert (memory._MEND in lines[-1]) == warned and len(lines) == 3 + warned


def dry(folder: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "recipe.spiral.main_spiral", "dry_run=true", "run_dir=run", *overrides]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hub")}
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[3]), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, cwd=folder, env={**environment, "PYTHONPATH": paths}
    )


@pytest.mark.e2e
def test_it_prints_what_differs_and_the_memory_and_starts_nothing(tmp_path: Path) -> None:
    done = dry(tmp_path, "+experiment=asynchronous", "hardware=cpu", "seed=3")
    said = ("  seed: 3\n", "rollout_is: sequence\n", "memory of the machine")
    assert done.returncode == 0 and all(part in done.stdout for part in said), done.stderr
    assert not any((tmp_path / "run" / name).exists() for name in ("games", "checkpoints", "train.log"))


@pytest.mark.e2e
def test_without_the_hub_the_file_that_is_missing_is_named(tmp_path: Path) -> None:
    done = dry(tmp_path, "model=hf", "hardware=gpu", "actor_rollout_ref.model.path=Qwen/Qwen3-4B-Base")
    assert done.returncode == 0 and "config.json of Qwen/Qwen3-4B-Base" in done.stdout, done.stderr
