"""The two losses that the config offers, through verl's own function."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra import compose, initialize_config_dir
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla

from recipe.spiral import main_spiral
from recipe.spiral.checks.settle import settle

CONFIG = Path(main_spiral.__file__).parent / "config"
#: Ratios of 4, 1/4, 1, 4 and 1/4, each on one row of one token.
LOG_RATIOS = torch.log(torch.tensor([[4.0], [0.25], [1.0], [4.0], [0.25]]))
ADVANTAGES = torch.tensor([[1.0], [1.0], [-1.0], [-1.0], [-1.0]])


class ActorConfig(SimpleNamespace):
    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


def loss_of_rows(loss: str, *overrides: str) -> list[float]:
    """The loss of each row alone."""
    with initialize_config_dir(str(CONFIG), version_base=None):
        whole = compose("spiral_trainer", overrides=[f"loss={loss}", "hardware=cpu", *overrides])
    settle(whole)
    actor = whole.actor_rollout_ref.actor
    config = ActorConfig(
        clip_ratio=actor.clip_ratio,
        clip_ratio_low=actor.clip_ratio_low,
        clip_ratio_high=actor.clip_ratio_high,
        clip_ratio_c=actor.clip_ratio_c,
        global_batch_info={},
    )
    losses = []
    for log_ratio, advantage in zip(LOG_RATIOS, ADVANTAGES, strict=True):
        loss_of_row, _ = compute_policy_loss_vanilla(
            torch.zeros(1, 1), log_ratio[None], advantage[None], torch.ones(1, 1), "token-mean", config
        )
        losses.append(loss_of_row.item())
    return losses


def test_importance_sampling_clips_nothing() -> None:
    assert loss_of_rows("importance_sampling") == pytest.approx([-4.0, -0.25, 1.0, 4.0, 0.25])


def test_clipped_is_ppos() -> None:
    """Where the advantage is negative, a ratio above 1 counts in full."""
    assert loss_of_rows("clipped") == pytest.approx([-1.2, -0.25, 1.0, 4.0, 0.8])


def test_dual_clip_can_be_had() -> None:
    dual = loss_of_rows("clipped", "actor_rollout_ref.actor.clip_ratio_c=3.0")
    assert dual == pytest.approx([-1.2, -0.25, 1.0, 3.0, 0.8])
