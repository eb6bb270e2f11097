"""SPIN by the whole stack: on questions, resumed between a refresh and a save; and on games with branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from experiments import arithmetic
from recipe.spiral.audit.__main__ import main as audit
from recipe.spiral.storage.record_folder import RecordFolder

from .conftest import Run, small
from .test_reference import same, shards

pytestmark = [pytest.mark.e2e, pytest.mark.full]


def metrics(run_dir: Path) -> dict[int, dict[str, Any]]:
    lines = [line for file in run_dir.glob("metrics-*.jsonl") for line in file.read_text().splitlines()]
    return {entry["step"]: entry["data"] for entry in map(json.loads, lines) if "pairs/count" in entry["data"]}


def test_questions(tmp_path: Path, runs: list[Run]) -> None:
    """The reference is that of step 2 in step 3 and 4, also where the run was stopped in between."""
    made, run_dir = tmp_path / "arithmetic", tmp_path / "run"
    arithmetic.make(made)
    overrides = [
        "+experiment=spin_arithmetic",
        f"actor_rollout_ref.model.path={made}/model",
        f"data.train_files={made}/train.jsonl",
        f"data.val_files={made}/test.jsonl",
        "data.train_batch_size=8",
        "actor_rollout_ref.rollout.n=8",
        "validation.questions=8",
        "ref_update_freq=2",
        "trainer.n_gpus_per_node=2",
        "trainer.save_freq=1",
        "trainer.test_freq=2",
        "trainer.logger=[file]",
    ]
    for steps in (3, 4):
        run = Run(run_dir, *overrides, f"trainer.total_training_steps={steps}")
        runs.append(run)
        assert run.wait() == 0, run.output[-4000:]
    found = metrics(run_dir)
    assert sorted(found) == [1, 2, 3, 4]
    for step, data in found.items():
        assert 0 < data["pairs/count"] <= 8 and data["games/count"] + data["games/discarded/void"] == 64
        assert data["actor/grad_norm"] > 0
        fresh = step in (1, 3)
        assert (abs(data["pairs/sums/margin"]) < 1e-4) == fresh, "the policy is the reference after a refresh"
    assert same(shards(run_dir, 3, "ref", False), shards(run_dir, 2, "actor", False))
    assert same(shards(run_dir, 4, "ref", False), shards(run_dir, 4, "actor", False)), "refreshed after step 4"
    assert audit([str(run_dir)]) == 0


def test_branches_of_games(tmp_path: Path, model: Path, runs: list[Run]) -> None:
    run_dir = tmp_path / "run"
    branching = ["loss=dpo", "branching.states=1", "branching.continuations=3", "data.games_per_start=2"]
    off = ["trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.total_training_steps=2"]
    run = Run(run_dir, *branching, *small(model, *off, "trainer.save_freq=-1"))
    runs.append(run)
    assert run.wait() == 0, run.output[-4000:]
    for step, data in metrics(run_dir).items():
        records = list(RecordFolder(run_dir / "games").read_step("train", step))
        branches = [record for record in records if record.key.branch]
        assert data["games/branches"] == len(branches) == 3 * 16 and data["games/count"] == 4 * 16
        marks = [turn.advantage for record in records for turn in record.turns]
        assert marks.count(1.0) == marks.count(-1.0) == data["pairs/count"] > 0
    assert audit([str(run_dir)]) == 0
