"""verl's registry of estimators, with one of the trainer's for ``rae``, ``grpo_role`` and objectives of extensions.

verl calls an estimator with rewards, mask and uids, which say neither game nor role nor what is padding. So the trainer
registers a function of its own, which knows the step that it is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY

from ..rae import rae_advantages

RAE = "rae"
GRPO = "grpo_role"


@dataclass(frozen=True)
class RowFacts:
    """What is known of the rows of a batch, in the batch's order, all [num_rows]. Padding rows are all zero.

    Attributes:
        outcomes, baselines, turns_remaining, gamma, scale: as of ``rae_advantages``.
        shaped: whether what the reward holds besides the outcome is added. Not where outcomes are marks of a loss.
    """

    outcomes: torch.Tensor
    baselines: torch.Tensor
    turns_remaining: torch.Tensor
    gamma: float = 1.0
    scale: torch.Tensor | float = 1.0
    shaped: bool = True


def estimate(facts: RowFacts, token_level_rewards: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Advantages and returns, both [num_rows, response_length].

    Whatever the reward holds besides the outcome (a KL penalty) is added to the advantage as it is: the baseline is one
    of outcomes only.
    """
    advantages, returns = rae_advantages(
        facts.outcomes, facts.baselines, facts.turns_remaining, mask, facts.gamma, facts.scale
    )
    if not facts.shaped:
        return advantages, returns
    shaping = token_level_rewards.sum(-1) - facts.outcomes
    shaping[shaping.abs() < 1e-6] = 0.0  # what is left of rounding is no shaping
    return advantages + shaping.unsqueeze(-1) * mask.to(torch.float32), returns


def register(names: Iterable[str], facts: Callable[[], RowFacts]) -> None:
    """Let verl find, under these names and in this process, an estimator that asks for the facts of the batch."""

    def estimator(
        token_level_rewards: torch.Tensor, response_mask: torch.Tensor, config: Any = None, **kwargs: Any
    ) -> tuple[torch.Tensor, ...]:
        return estimate(facts(), token_level_rewards, response_mask)

    ADV_ESTIMATOR_REGISTRY.update(dict.fromkeys(names, estimator))
