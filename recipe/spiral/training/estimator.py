"""RAE (``algorithm.adv_estimator: rae``), GRPO per role (``grpo_role``) and the marks of DPO's pairs (``dpo``) under
verl's registry of estimators.

verl calls an estimator with rewards, mask and uids, which say neither game nor role nor what is padding. The trainer
lays these facts beside the call; the registered function joins the two. Which baseline it is, the trainer has decided.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from verl.trainer.ppo.core_algos import register_adv_est

from ..rae import rae_advantages
from ..spin.dpo import DPO

RAE = "rae"
GRPO = "grpo_role"


@dataclass(frozen=True)
class RowFacts:
    """What ``rae_advantages`` needs of the rows of a batch, in the batch's order. Padding rows are all zero."""

    outcomes: torch.Tensor
    baselines: torch.Tensor
    turns_remaining: torch.Tensor
    gamma: float = 1.0
    scale: torch.Tensor | float = 1.0


_facts: ContextVar[RowFacts | None] = ContextVar("spiral_row_facts", default=None)


@contextmanager
def row_facts(facts: RowFacts) -> Iterator[None]:
    """Lay the facts beside the estimator."""
    token = _facts.set(facts)
    try:
        yield
    finally:
        _facts.reset(token)


@register_adv_est(GRPO)
@register_adv_est(RAE)
def compute_rae_advantage(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, config: Any = None, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Advantages and returns, both [num_rows, response_length].

    Whatever the reward holds besides the outcome (a KL penalty) is added to the advantage as it is: the baseline is one
    of outcomes only.

    Raises:
        RuntimeError: called by another trainer than ours.
    """
    facts = _row_facts()
    mask = response_mask.to(torch.float32)
    advantages, returns = rae_advantages(
        facts.outcomes, facts.baselines, facts.turns_remaining, response_mask, facts.gamma, facts.scale
    )
    shaping = token_level_rewards.sum(-1) - facts.outcomes
    shaping[shaping.abs() < 1e-6] = 0.0  # what is left of rounding is no shaping
    return advantages + shaping.unsqueeze(-1) * mask, returns


@register_adv_est(DPO)
def compute_dpo_marks(
    token_level_rewards: torch.Tensor, response_mask: torch.Tensor, config: Any = None, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """1 on the tokens of chosen responses, -1 on those of rejected ones: no advantages, but what the loss goes by.

    Both results are the same, [num_rows, response_length].

    Raises:
        RuntimeError: called by another trainer than ours.
    """
    marks = _row_facts().outcomes.unsqueeze(-1) * response_mask.to(torch.float32)
    return marks, marks


def _row_facts() -> RowFacts:
    facts = _facts.get()
    if facts is None:
        raise RuntimeError(
            f"algorithm.adv_estimator={RAE}, {GRPO} and {DPO} need SPIRAL's trainer: "
            "python -m recipe.spiral.main_spiral"
        )
    return facts
