"""DPO's loss: against the formula, and through verl's own loss function."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils import tensordict_utils as tu

from recipe.spiral.spin.dpo import PairLoss, dpo_losses, log_ratios
from recipe.spiral.spin.dpo_settings import DPO, DpoSettings

# -- the formula -------------------------------------------------------------------------------------------------------


def by_hand(chosen: float, rejected: float, settings: DpoSettings) -> tuple[float, float]:
    """A pair's loss and its derivative by the chosen response's log-ratio, in plain numbers."""
    d, beta, e = chosen - rejected, settings.beta, settings.label_smoothing

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    if settings.loss_type == "ipo":
        return (d - 1 / (2 * beta)) ** 2, 2 * (d - 1 / (2 * beta))
    if settings.loss_type == "hinge":
        return max(0.0, 1 - beta * d), -beta if beta * d < 1 else 0.0
    loss = -(1 - e) * math.log(sigmoid(beta * d)) - e * math.log(sigmoid(-beta * d))
    return loss, -(1 - e) * beta * sigmoid(-beta * d) + e * beta * sigmoid(beta * d)


@pytest.mark.parametrize(
    "settings",
    [
        DpoSettings(0.1),
        DpoSettings(0.7, label_smoothing=0.2),
        DpoSettings(0.3, "ipo"),
        DpoSettings(0.5, "hinge"),
    ],
)
def test_loss_and_gradient_are_those_of_the_formula(settings: DpoSettings) -> None:
    generator = torch.Generator().manual_seed(0)
    chosen, rejected = (3 * torch.randn(50, generator=generator, dtype=torch.float64) for _ in range(2))
    chosen.requires_grad_()
    rejected.requires_grad_()
    losses = dpo_losses(chosen, rejected, settings)
    losses.sum().backward()
    expected = [by_hand(float(c), float(r), settings) for c, r in zip(chosen, rejected, strict=True)]
    assert losses.tolist() == pytest.approx([loss for loss, _ in expected])
    assert chosen.grad is not None and rejected.grad is not None
    assert chosen.grad.tolist() == pytest.approx([slope for _, slope in expected])
    assert rejected.grad.tolist() == pytest.approx([-slope for _, slope in expected])


def test_responses_are_added_up_or_averaged_and_what_is_masked_does_not_count() -> None:
    log_probs = torch.tensor([[-1.0, -2.0, math.nan], [-3.0, 9.0, 9.0]])
    reference, mask = torch.tensor([[-2.0, -4.0, 0.0], [-1.0, 0.0, 0.0]]), torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert log_ratios(log_probs, reference, mask, DpoSettings()).tolist() == [3.0, -2.0]
    assert log_ratios(log_probs, reference, mask, DpoSettings(log_prob="mean")).tolist() == [1.5, -2.0]


# -- rows --------------------------------------------------------------------------------------------------------------


class Actor:
    """What the loss reads of verl's config."""

    def __init__(self, global_batch_size: int, dp_size: int = 1) -> None:
        self.global_batch_info = {"global_batch_size": global_batch_size, "dp_size": dp_size}


def loss_of(marks: list[float], global_batch_size: int = 4) -> tuple[float, dict[str, float]]:
    """The loss of rows whose log-ratios are 1, 2, 3, ..., through the registry."""
    rows = len(marks)
    log_probs = torch.arange(1.0, rows + 1)[:, None].expand(rows, 1)
    columns = {"ref_log_prob": torch.nested.as_nested_tensor([torch.zeros(1)] * rows, layout=torch.jagged)}
    settings = DpoSettings(1.0).batch_info
    data = tu.get_tensordict(columns, {**settings, "dp_size": 1, "global_batch_size": global_batch_size})

    def verls(model_output: Any, data: Any, dp_group: Any) -> tuple[torch.Tensor, dict[str, Any]]:
        loss_fn = get_policy_loss_fn(DPO)
        advantages, mask = torch.tensor(marks)[:, None], torch.ones(rows, 1)
        return loss_fn(log_probs, log_probs, advantages, mask, "token-mean", Actor(global_batch_size))

    loss, metrics = PairLoss(verls)(model_output=None, data=data)
    return float(loss), {name: metric.aggregate() for name, metric in metrics.items()}


def test_two_rows_side_by_side_are_a_pair_in_either_order_and_padding_is_none() -> None:
    def minus_log_sigmoid(x: float) -> float:
        return math.log(1 + math.exp(-x))

    both = minus_log_sigmoid(-1) + minus_log_sigmoid(1)
    loss, metrics = loss_of([1, -1, -1, 1, 0, 0])
    assert loss == pytest.approx(both / 2)
    assert metrics == pytest.approx(
        {
            "actor/dpo_accuracy": 0.5,
            "actor/dpo_margin": 0.0,
            "actor/dpo_chosen_reward": 2.5,
            "actor/dpo_rejected_reward": 2.5,
        }
    )
    # a part of a mini-batch of five pairs
    assert loss_of([1, -1, -1, 1, 0, 0], global_batch_size=10)[0] == pytest.approx(both / 5)
    assert loss_of([0, 0])[0] == 0.0
