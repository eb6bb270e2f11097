"""A reference policy that moves: KL is measured against the exponential mean of what the actor was, also after a
resume. ``test_spin`` has the last copy of the actor."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.e2e.conftest import LORA, NO_VALIDATION, Runs, logged, small

pytestmark = [pytest.mark.e2e, pytest.mark.full]
FULL = ["trainer.n_gpus_per_node=2"]


def kl(run_dir: Path) -> dict[int, float]:
    """KL to the reference in each step; with one optimizer step each, it is that of the weights before the step."""
    steps = logged(run_dir, "actor/kl_loss")
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


def compared(model: Path, lora: bool) -> list[str]:
    """A run with KL, which saves each step."""
    return [
        *small(model, *NO_VALIDATION, "trainer.save_freq=1"),
        "actor_rollout_ref.actor.use_kl_loss=true",
        f"actor_rollout_ref.actor.optim.lr={1e-2 if lora else 1e-3}",
    ]


@pytest.mark.parametrize("overrides", [FULL, LORA], ids=["full", "lora"])
def test_the_reference_is_the_mean(tmp_path: Path, model: Path, runs: Runs, overrides: list[str]) -> None:
    """Recomputed from the actor's checkpoints, over SIGKILL and a new start that asks for another rate."""
    lora, run_dir = overrides is LORA, tmp_path / "run"
    overrides = [*compared(model, lora), "trainer.max_actor_ckpt_to_keep=5", "ref_update_freq=1", *overrides]
    killed = runs.start(run_dir, *overrides, "ref_update_rate=0.25", "trainer.total_training_steps=9")
    killed.wait_for(r"^step *3/")
    killed.signal(signal.SIGKILL)
    killed.wait()
    resumed = runs.train(run_dir, *overrides, "ref_update_rate=0.5", "trainer.total_training_steps=5")
    at = re.search(r"ref_update_rate: 0\.25 up to \S*global_step_(\d+), 0\.5 from there on", resumed.output)
    assert at is not None and 2 <= int(at[1]) < 5, resumed.output[-4000:]

    actors = {step: shards(run_dir, step, "actor", lora) for step in range(1, 6)}
    if lora:
        means = [{name: zeroed(name, tensor.double()) for name, tensor in actors[1][0].items()}]
    else:
        initial = AutoModelForCausalLM.from_pretrained(model).state_dict()
        ranks = [{name: tensor.double().chunk(2)[rank] for name, tensor in initial.items()} for rank in range(2)]
        means = [{name: ranks[rank][name] for name in state} for rank, state in enumerate(actors[1])]
    for step, actor in actors.items():
        rate = 0.25 if step <= int(at[1]) else 0.5
        means = [
            {name: (1 - rate) * tensor + rate * now[name].double() for name, tensor in mean.items()}
            for mean, now in zip(means, actor, strict=True)
        ]
        reference = shards(run_dir, step, "ref", lora)
        for saved, mean, now in zip(reference, means, actor, strict=True):
            assert {tensor.dtype for tensor in saved.values()} == {torch.float32}
            torch.testing.assert_close({name: tensor.double() for name, tensor in saved.items()}, mean)
            assert any((saved[name] - now[name]).abs().max() > 1e-4 for name in saved)
    measured = kl(run_dir)
    assert measured[1] < 1e-6 and min(measured[step] for step in range(2, 6)) > 1e-5


def zeroed(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The base model as an adapter: any A, with a B of zeros."""
    return torch.zeros_like(tensor) if "lora_B" in name else tensor
