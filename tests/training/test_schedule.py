"""The learning rate's schedule counts training steps, those in which nothing is trained included."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tensordict import TensorDict
from verl.utils import tensordict_utils as tu
from verl.utils.torch_functional import get_cosine_schedule_with_warmup

from recipe.spiral.workers import mini_batch_worker
from recipe.spiral.workers.mini_batch_worker import MiniBatchWorker


def worker() -> tuple[MiniBatchWorker, Any]:
    """A worker of a policy with one weight, and its cosine schedule of 10 steps."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, num_warmup_steps=0, num_training_steps=10)

    def step() -> float:
        optimizer.step()
        schedule.step()
        return float(schedule.get_last_lr()[0])

    made: Any = object.__new__(MiniBatchWorker)
    made.engine = SimpleNamespace(lr_scheduler_step=step, get_data_parallel_group=lambda: None)
    return made, schedule


def test_a_step_without_training_is_a_mini_batch_without_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *args, **more: None)
    monkeypatch.setattr(mini_batch_worker, "get_device_name", lambda: "cpu")
    (skips, _), (trains, schedule) = worker(), worker()
    for number in range(1, 10):
        padding = TensorDict({"num_turns": torch.zeros(2), "response_mask": torch.zeros(2, 3)}, batch_size=2)
        tu.assign_non_tensor(padding, update_lr_scheduler=True)
        rate = tu.get(trains.train_batch(padding), "metrics")["lr"]
        assert skips.skip_update() == rate == schedule.get_last_lr()[0]
        assert rate == pytest.approx((1 + torch.cos(torch.tensor(number / 10 * torch.pi)).item()) / 2, abs=1e-6)
