"""A reference policy that is refreshed: KL is measured against the last copy of the actor, also after a resume."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from .conftest import Run, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
FULL = ["trainer.n_gpus_per_node=2"]
LORA = ["actor_rollout_ref.model.lora_rank=8", "actor_rollout_ref.model.lora_alpha=16"]


def kl(run_dir: Path) -> dict[int, float]:
    """KL to the reference in each step; with one optimizer step each, it is that of the weights before the step."""
    lines = [line for file in run_dir.glob("metrics-*.jsonl") for line in file.read_text().splitlines()]
    steps = {entry["step"]: entry["data"] for entry in map(json.loads, lines) if "actor/kl_loss" in entry["data"]}
    assert all(("timing_s/update_ref" in data) == bool(data["ref/updated"]) for data in steps.values())
    return {step: abs(data["actor/kl_loss"]) for step, data in sorted(steps.items())}


def shards(run_dir: Path, step: int, part: str, lora: bool) -> list[dict[str, torch.Tensor]]:
    """What each rank saved, without DTensor around it."""
    files = sorted((run_dir / f"checkpoints/global_step_{step}" / part).glob("model_world_size_*.pt"))
    states = [torch.load(file, weights_only=part == "ref") for file in files]
    return [
        {name: getattr(t, "_local_tensor", t) for name, t in state.items() if "lora_" in name or not lora}
        for state in states
    ]


def same(a: list[dict[str, torch.Tensor]], b: list[dict[str, torch.Tensor]]) -> bool:
    assert [state.keys() for state in a] == [state.keys() for state in b] and a[0]
    return all(torch.equal(x[name], y[name]) for x, y in zip(a, b, strict=True) for name in x)


@pytest.mark.parametrize("overrides", [FULL, LORA], ids=["full", "lora"])
def test_the_reference_is_the_last_copy(tmp_path: Path, model: Path, runs: list[Run], overrides: list[str]) -> None:
    lora, run_dir = overrides is LORA, tmp_path / "run"
    overrides = [
        *small(model, "trainer.val_before_train=false", "trainer.test_freq=-1", "trainer.save_freq=1"),
        "trainer.max_actor_ckpt_to_keep=3",
        "actor_rollout_ref.actor.use_kl_loss=true",
        f"actor_rollout_ref.actor.optim.lr={1e-2 if lora else 1e-3}",
        *overrides,
    ]
    first = Run(run_dir, *overrides, "ref_update_freq=2", "trainer.total_training_steps=3")
    runs.append(first)
    assert first.wait() == 0, first.output[-4000:]
    before = kl(run_dir)
    assert before[1] < 1e-6, "the initial model's KL to itself"
    assert before[2] > 1e-3, "not refreshed yet"
    assert before[3] < 1e-6, "refreshed after step 2"
    reference = shards(run_dir, 3, "ref", lora)
    assert same(reference, shards(run_dir, 2, "actor", lora))
    assert not same(reference, shards(run_dir, 3, "actor", lora))

    resumed = Run(run_dir, *overrides, "ref_update_freq=100", "trainer.total_training_steps=4")
    runs.append(resumed)
    assert resumed.wait() == 0, resumed.output[-4000:]
    assert kl(run_dir)[4] > 1e-4, "the actor has moved on since step 2"
    assert same(reference, shards(run_dir, 4, "ref", lora))
