"""DPO's loss (arXiv 2305.18290), with which SPIN trains (arXiv 2401.01335), under verl's registry of policy losses.

verl's losses know rows only. So rows 2i and 2i + 1 of every micro-batch are a pair (``force_group_size`` keeps them
together), and their advantages say which is which: 1 is chosen, -1 rejected, and 0 in both is padding. verl gives a
policy loss no log-probabilities of the reference: the worker lays them beside the call.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from verl.trainer.ppo.core_algos import register_policy_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric.utils import AggregationType, Metric

from .dpo_settings import DPO, DpoSettings


def log_ratios(
    log_probs: torch.Tensor, reference: torch.Tensor, mask: torch.Tensor, settings: DpoSettings
) -> torch.Tensor:
    """log pi - log ref of whole responses, [num_rows]; from tokens, with ``mask`` 1, [num_rows, response_length]."""
    mask = mask.to(torch.float32)
    # where() and not a product: outside of the mask there may be anything
    summed = torch.where(mask > 0, log_probs.float() - reference.float(), 0.0).sum(-1)
    return summed if settings.log_prob == "sum" else summed / mask.sum(-1).clamp(min=1)


def dpo_losses(chosen: torch.Tensor, rejected: torch.Tensor, settings: DpoSettings) -> torch.Tensor:
    """Each pair's loss, from the log-ratios of its responses. All [num_pairs]

    With d = chosen - rejected: sigmoid -(1 - e) log s(beta d) - e log s(-beta d), where e is the label smoothing; ipo
    (d - 1 / (2 beta))^2; hinge max(0, 1 - beta d).
    """
    difference, beta, smoothing = chosen - rejected, settings.beta, settings.label_smoothing
    if settings.loss_type == "ipo":
        return (difference - 1 / (2 * beta)).square()
    if settings.loss_type == "hinge":
        return torch.relu(1 - beta * difference)
    return -(1 - smoothing) * F.logsigmoid(beta * difference) - smoothing * F.logsigmoid(-beta * difference)


def pair_sums(chosen: torch.Tensor, rejected: torch.Tensor, beta: float) -> dict[str, float]:
    """Of pairs together: how many the policy prefers as they are (d > 0), rewards beta (log pi - log ref), margins."""
    return {
        "accuracy": float((chosen > rejected).sum()),
        "margin": beta * float((chosen - rejected).sum()),
        "chosen_reward": beta * float(chosen.sum()),
        "rejected_reward": beta * float(rejected.sum()),
    }


@dataclass
class _Beside:
    """What the loss of a micro-batch needs besides what verl gives it, and the ``pair_sums`` that it leaves."""

    #: The reference's log-probabilities. [num_rows, response_length]
    reference: torch.Tensor
    settings: DpoSettings
    sums: dict[str, float] = field(default_factory=dict)


_beside: ContextVar[_Beside | None] = ContextVar("spiral_dpo", default=None)


@register_policy_loss(DPO)
def compute_policy_loss_dpo(
    old_log_prob: torch.Tensor,
    log_prob: torch.Tensor,
    advantages: torch.Tensor,
    response_mask: torch.Tensor,
    loss_agg_mode: str = "token-mean",
    config: Any = None,
    rollout_is_weights: torch.Tensor | None = None,
) -> tuple[torch.Tensor, dict[str, Any]]:
    """The mean over the pairs of the mini-batch, of which these rows may be a part; and no metrics of verl's kind.

    Args:
        log_prob, response_mask: of the responses' tokens. [num_rows, response_length]
        advantages: 1, -1 or 0, the same on all tokens of a row. [num_rows, response_length]
        config: verl's ``ActorConfig``, which knows the mini-batch's size.
        old_log_prob, loss_agg_mode, rollout_is_weights: not used.

    Raises:
        RuntimeError: called by other workers than ours, or two rows are no pair.
    """
    beside = _beside.get()
    if beside is None:
        raise RuntimeError("loss=dpo needs SPIRAL's trainer: python -m recipe.spiral.main_spiral")
    marks = (advantages * response_mask).sum(-1) / response_mask.sum(-1).clamp(min=1)
    chosen, rejected, real = _pairs(log_ratios(log_prob, beside.reference, response_mask, beside.settings), marks)
    beside.sums = pair_sums(chosen[real].detach(), rejected[real].detach(), beside.settings.beta)
    total = torch.where(real, dpo_losses(chosen, rejected, beside.settings), 0.0).sum()
    batch = config.global_batch_info
    return total / (batch["global_batch_size"] / 2) * batch["dp_size"], {}


def _pairs(ratios: torch.Tensor, marks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The values of the chosen and of the rejected rows, and which pairs are not padding; all [num_rows / 2]."""
    signs = marks.round().view(-1, 2) if len(marks) % 2 == 0 else None
    if signs is None or signs.sum(-1).any():
        raise RuntimeError(f"loss=dpo: rows marked {marks.tolist()} are no pairs of a chosen and a rejected response")
    first, second = ratios.view(-1, 2).unbind(-1)
    forward = signs[:, 0] >= 0
    return torch.where(forward, first, second), torch.where(forward, second, first), signs[:, 0] != 0


@dataclass(frozen=True)
class PairLoss:
    """verl's loss function of a micro-batch; the reference's log-probabilities lie beside it where rows are pairs.

    Metrics are means over the pairs of a mini-batch: verl averages over ranks, and then adds up micro-batches.
    """

    loss: Callable[..., tuple[torch.Tensor, dict[str, Any]]]

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        settings = tu.get(data, DPO)
        if settings is None:
            return self.loss(model_output=model_output, data=data, dp_group=dp_group)
        reference = data.select("ref_log_prob").to_padded_tensor()["ref_log_prob"]
        token = _beside.set(beside := _Beside(reference, DpoSettings(**settings)))
        try:
            loss, metrics = self.loss(model_output=model_output, data=data, dp_group=dp_group)
        finally:
            _beside.reset(token)
        share = data["dp_size"] / (data["global_batch_size"] / 2)
        sums = {f"actor/dpo_{name}": Metric(AggregationType.SUM, share * sum_) for name, sum_ in beside.sums.items()}
        return loss, metrics | sums
