"""The update of the quick loop: the config's loss and optimizer in plain torch.

A batch has one update, whose old log-probabilities are those of the policy that is updated, so PPO's ratio is 1 and
nothing is clipped. The loss is then linear in the rows, so that equal rows are one, with the sum of their weights. What
went through the model when games were played does not go through it again (``quick_sampler.Distributions``).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from verl.trainer.ppo.core_algos import kl_penalty

from experiments.quick_sampler import Distributions, Row


@dataclass
class Weight:
    """The sum over all turns that have the same prompt and response: of their advantages, and their number."""

    advantage: float = 0.0
    count: int = 0


class Learner:
    """A model, its optimizer and its reference.

    Args:
        policy: the distributions of the model, which is trained in place; they keep their graph.
        actor: ``actor_rollout_ref.actor`` of the config.
        steps: the number of training steps, for the learning rate's schedule.
    """

    def __init__(self, policy: Distributions, actor: Any, steps: int) -> None:
        self.policy, self.actor, self.model = policy, actor, policy.model.train()
        self.reference: Distributions | None = None
        if actor.use_kl_loss:
            start = copy.deepcopy(self.model).eval().requires_grad_(False)
            self.reference = Distributions(start, trained=False, temperature=policy.temperature)
        optim = actor.optim
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, rate(optim, steps))

    def move_reference(self, share: float) -> None:
        """The reference goes so far towards the policy; at 1 it becomes a copy."""
        assert self.reference is not None
        with torch.no_grad():
            for old, new in zip(self.reference.model.parameters(), self.model.parameters(), strict=True):
                old.lerp_(new, share)
        self.reference.forget()

    def update(self, rows: Mapping[Row, Weight]) -> None:
        """One step of the optimizer."""
        self._optimizer.zero_grad()
        self.loss(rows).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), float(self.actor.optim.clip_grad))
        self._optimizer.step()
        self._schedule.step()
        self.policy.forget()

    def loss(self, rows: Mapping[Row, Weight]) -> torch.Tensor:
        """``seq-mean-token-sum-norm`` of the policy gradient, the entropy bonus and the KL to the reference."""
        log_p, chosen, mask = self.policy.of(rows)
        advantages = torch.tensor([weight.advantage for weight in rows.values()], device=mask.device)
        counts = torch.tensor([float(weight.count) for weight in rows.values()], device=mask.device)
        total = -(advantages * (chosen * mask).sum(1)).sum()
        if self.actor.entropy_coeff:
            entropy = -(log_p.exp() * log_p).sum(-1)
            total = total - float(self.actor.entropy_coeff) * (counts * (entropy * mask).sum(1)).sum()
        if self.actor.use_kl_loss:
            apart = kl_penalty(chosen, self._reference_log_probs(rows), self.actor.kl_loss_type)
            total = total + float(self.actor.kl_loss_coef) * (counts * (apart * mask).sum(1)).sum()
        return total / float(self.actor.loss_scale_factor) / counts.sum()

    def _reference_log_probs(self, rows: Collection[Row]) -> torch.Tensor:
        """The reference's log-probabilities of the responses' tokens. [rows, longest]"""
        assert self.reference is not None
        return self.reference.of(rows)[1]


def rate(optim: Any, steps: int) -> Callable[[int], float]:
    """The learning rate's factor by step: constant, or a cosine down to ``min_lr_ratio``."""
    if optim.lr_scheduler_type == "constant":
        return lambda step: 1.0
    least = float(optim.min_lr_ratio or 0.0)
    return lambda step: least + (1 - least) * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
