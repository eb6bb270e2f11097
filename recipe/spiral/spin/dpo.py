"""DPO's loss (arXiv 2305.18290), with which SPIN trains (arXiv 2401.01335), added to verl's.

verl's losses of a policy know rows only, and nothing of the reference. So the one that is registered here is 0, and
``PairLoss``, around verl's loss function of a micro-batch, adds the pairs' to the KL and entropy terms. Rows 2i and
2i + 1 of every micro-batch are a pair (``force_group_size`` keeps them together), and their advantages say which is
which: 1 is chosen, -1 rejected, and 0 in both is padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from verl.trainer.ppo.core_algos import register_policy_loss
from verl.utils import tensordict_utils as tu
from verl.utils.metric.utils import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from .spin_settings import DPO, DpoSettings


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


@register_policy_loss(DPO)
def no_loss_of_rows(log_prob: torch.Tensor, **_: Any) -> tuple[torch.Tensor, dict[str, Any]]:
    """What rows give on their own, in verl's form."""
    return log_prob.new_zeros(()), {}


@dataclass(frozen=True)
class PairLoss:
    """verl's loss function of a micro-batch, and that of its pairs: the mean over those of the mini-batch, of which
    these rows may be a part.

    Metrics are means over the pairs of a mini-batch: verl averages over ranks, and then adds up micro-batches.
    """

    loss: Callable[..., tuple[torch.Tensor, dict[str, Any]]]

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """
        Args:
            data: of the rows, by verl's names; their advantages are 1, -1 or 0, the same on all tokens of a row.

        Raises:
            RuntimeError: two rows are no pair.
        """
        others, metrics = self.loss(model_output=model_output, data=data, dp_group=dp_group)
        if (given := tu.get(data, DPO)) is None:
            return others, metrics
        settings = DpoSettings(**given)
        rows = data.select("ref_log_prob", "advantages", "response_mask").to_padded_tensor()
        mask, log_probs = rows["response_mask"], no_padding_2_padding(model_output["log_probs"], data)
        marks = (rows["advantages"] * mask).sum(-1) / mask.sum(-1).clamp(min=1)
        chosen, rejected, real = _pairs(log_ratios(log_probs, rows["ref_log_prob"], mask, settings), marks)
        pairs = data["global_batch_size"] / 2
        loss = torch.where(real, dpo_losses(chosen, rejected, settings), 0.0).sum() / pairs * data["dp_size"]
        share, sums = data["dp_size"] / pairs, pair_sums(chosen[real].detach(), rejected[real].detach(), settings.beta)
        of_pairs = {f"actor/dpo_{name}": share * value for name, value in sums.items()} | {"actor/pg_loss": loss}
        return others + loss, metrics | {name: Metric(AggregationType.SUM, value) for name, value in of_pairs.items()}


def _pairs(ratios: torch.Tensor, marks: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The values of the chosen and of the rejected rows, and which pairs are not padding; all [num_rows / 2]."""
    signs = marks.round().view(-1, 2) if len(marks) % 2 == 0 else None
    if signs is None or signs.sum(-1).any():
        raise RuntimeError(f"loss=dpo: rows marked {marks.tolist()} are no pairs of a chosen and a rejected response")
    first, second = ratios.view(-1, 2).unbind(-1)
    forward = signs[:, 0] >= 0
    return torch.where(forward, first, second), torch.where(forward, second, first), signs[:, 0] != 0
