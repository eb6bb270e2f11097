"""The update of the quick loop: the config's loss and optimizer in plain torch, on one device.

A batch has one update, whose old log-probabilities are those of the policy that is updated, so PPO's ratio is 1 and
nothing is clipped. The loss is then linear in the rows, so that equal rows are one, with the sum of their weights.
Rows of an older policy are weighted by truncated ratios. DPO's loss is the trainer's function of pairs of rows. What
went through the model when games were played does not go through it again (``quick_sampler.Distributions``).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from experiments.quick_methods import falling
from experiments.quick_sampler import Distributions, Row

if TYPE_CHECKING:
    import torch

    from recipe.spiral.spin.dpo import DpoSettings

#: A chosen and a rejected response.
Pair = tuple[Row, Row]


@dataclass
class Weight:
    """The sum over all turns that have the same prompt and response.

    Attributes:
        advantage: the sum of their advantages.
        count: how many turns there are.
        log_probs: of the response's tokens, of the policy that sampled them; () where they are not needed.
    """

    advantage: float = 0.0
    count: int = 0
    log_probs: tuple[float, ...] = ()


@dataclass(frozen=True)
class LossSettings:
    """The loss: ``seq-mean-token-sum-norm`` of the policy gradient, the entropy and the KL to a reference.

    Attributes:
        scale: the divisor of a turn's sum over tokens.
        entropy: the coefficient of the entropy bonus.
        kl: the coefficient of KL to the reference; None: there is no reference.
        kl_type: verl's name of the KL estimator.
        grad_clip: the largest norm of the gradient.
        dpo: how pairs are compared; None: rows are trained.
        rollout_is: how rows of an older policy are weighted, by "token" or by "sequence"; None: not at all.
        most: a larger ratio counts as this.
        kl_end: the coefficient of KL at the end, to which it falls by the same factor at each step; None: it stays.
        kl_in_loss: whether the KL is a part of the loss; otherwise it is in the advantages.
    """

    scale: float
    entropy: float
    kl: float | None
    kl_type: str
    grad_clip: float
    dpo: DpoSettings | None = None
    rollout_is: str | None = None
    most: float = 2.0
    kl_end: float | None = None
    kl_in_loss: bool = True


class Learner:
    """A model, its optimizer and its reference.

    Args:
        policy: the distributions of the model, which is trained in place; they keep their graph.
        loss: the settings of the loss.
        optim: ``actor_rollout_ref.actor.optim`` of the config.
        steps: the number of training steps, for the learning rate's schedule.
    """

    def __init__(self, policy: Distributions, loss: LossSettings, optim: Any, steps: int) -> None:
        import copy

        import torch

        self.policy, self.loss, self.model = policy, loss, policy.model.train()
        self.steps, self.done = steps, 0
        self.reference: Distributions | None = None
        #: The reference before the last copy, and the step of that copy.
        self.before: Distributions | None = None
        self.copied = 0
        #: The reference's log-probabilities of the responses' tokens.
        self._referred: dict[Row, torch.Tensor] = {}
        if loss.kl is not None:
            start = copy.deepcopy(self.model).eval().requires_grad_(False)
            self.reference = Distributions(start, trained=False, temperature=policy.temperature)
        self._optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, rate(optim, steps))

    def refresh(self, rate: float = 1.0) -> None:
        """The reference goes so far towards the policy; at 1 it becomes a copy."""
        import copy

        import torch

        assert self.reference is not None
        if rate == 1:
            self.before, self.copied = copy.deepcopy(self.reference), self.done
        with torch.no_grad():
            for old, new in zip(self.reference.model.parameters(), self.model.parameters(), strict=True):
                old.lerp_(new, rate)
        self._referred.clear()

    @property
    def kl(self) -> float:
        """The present coefficient of KL."""
        return falling(self.loss.kl or 0.0, self.loss.kl_end, self.done / self.steps)

    def ratios(self, rows: Sequence[Row], every: int) -> list[float]:
        """log(policy / reference) of each response. In the first half of the ``every`` steps between two copies this
        reference goes from the one before to the present one, by the mean of their log-probabilities."""
        import torch

        places = {row: place for place, row in enumerate(dict.fromkeys(rows))}
        with torch.no_grad():
            wanted = self.referred(places).sum(1)
            if self.before is not None:
                new = min(1.0, 2 * (self.done - self.copied) / every)
                _, values, mask = self.before.of(places)
                wanted = new * wanted + (1 - new) * (values * mask).sum(1)
            _, values, mask = self.policy.of(places)
            found = ((values * mask).sum(1) - wanted).tolist()
        return [found[places[row]] for row in rows]

    def update(self, rows: Mapping[Row, Weight]) -> None:
        """One step of the optimizer."""
        self._step(self.objective(rows))

    def update_by_pairs(self, pairs: Sequence[Pair]) -> None:
        """One step of the optimizer; none without a pair, when the learning rate's schedule waits as well."""
        if pairs:
            self._step(self.pairs_objective(pairs))

    def _step(self, objective: torch.Tensor) -> None:
        import torch

        self._optimizer.zero_grad()
        objective.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.loss.grad_clip)
        self._optimizer.step()
        self._schedule.step()
        self.policy.forget()
        self.done += 1

    def pairs_objective(self, pairs: Sequence[Pair]) -> torch.Tensor:
        """DPO's loss of a batch, the mean over its pairs."""
        import torch
        from verl.trainer.ppo.core_algos import kl_penalty

        from recipe.spiral.spin.dpo import dpo_losses, log_ratios

        assert self.loss.dpo is not None
        places = {row: place for place, row in enumerate(dict.fromkeys(row for pair in pairs for row in pair))}
        _, log_probs, mask = self.policy.of(places)
        wanted = self.referred(places)
        at = torch.tensor([[places[chosen], places[rejected]] for chosen, rejected in pairs], device=mask.device)
        chosen, rejected = log_ratios(log_probs, wanted, mask, self.loss.dpo)[at].unbind(-1)
        total = dpo_losses(chosen, rejected, self.loss.dpo).mean()
        if self.loss.kl:
            apart = kl_penalty(log_probs, wanted, self.loss.kl_type)
            total = total + self.loss.kl * ((apart * mask).sum(1) / self.loss.scale)[at].mean()
        return total

    def referred(self, rows: Collection[Row]) -> torch.Tensor:
        """The reference's log-probabilities of the responses' tokens, 0 after their end. [rows, longest]"""
        import torch

        assert self.reference is not None
        if missing := [row for row in rows if row not in self._referred]:
            _, values, _ = self.reference.of(missing)
            self.reference.forget()  # what is needed again is known now, and takes less room
            for row, of_row in zip(missing, values, strict=True):
                self._referred[row] = of_row[: len(row[1])]
        return torch.nn.utils.rnn.pad_sequence([self._referred[row] for row in rows], batch_first=True)

    def objective(self, rows: Mapping[Row, Weight]) -> torch.Tensor:
        """The loss of a batch."""
        import torch
        from verl.trainer.ppo.core_algos import kl_penalty

        log_p, chosen, mask = self.policy.of(rows)
        advantages = torch.tensor([weight.advantage for weight in rows.values()], device=mask.device)
        counts = torch.tensor([float(weight.count) for weight in rows.values()], device=mask.device)
        total = -(advantages * (chosen * self._corrected(mask, chosen.detach(), rows)).sum(1)).sum()
        if self.loss.entropy:
            entropy = -(log_p.exp() * log_p).sum(-1)
            total = total - self.loss.entropy * (counts * (entropy * mask).sum(1)).sum()
        if self.loss.kl and self.loss.kl_in_loss:
            apart = kl_penalty(chosen, self.referred(rows), self.loss.kl_type)
            total = total + self.kl * (counts * (apart * mask).sum(1)).sum()
        return total / self.loss.scale / counts.sum()

    def _corrected(self, mask: torch.Tensor, chosen: torch.Tensor, rows: Mapping[Row, Weight]) -> torch.Tensor:
        """The responses' mask with the ratio of each token, or of each row, to the policy that sampled it.

        Args:
            mask: of the responses' tokens [rows, longest].
            chosen: their log-probabilities [rows, longest].
            rows: with log-probabilities of the responses' tokens.
        """
        import torch

        if self.loss.rollout_is is None:
            return mask
        sampled = torch.zeros_like(chosen)
        values = [value for weight in rows.values() for value in weight.log_probs]
        sampled[mask > 0] = torch.tensor(values, dtype=chosen.dtype, device=chosen.device)
        ratios = (chosen - sampled) * mask
        if self.loss.rollout_is == "sequence":
            ratios = ratios.sum(1, keepdim=True)
        return mask * ratios.exp().clamp(max=self.loss.most)


def rate(optim: Any, steps: int) -> Any:
    """The learning rate's factor by step: constant, or a cosine down to ``min_lr_ratio``.

    Raises:
        ValueError: another schedule, or a warm-up.
    """
    if optim.lr_warmup_steps > 0 or optim.lr_warmup_steps_ratio > 0:
        raise ValueError(
            "actor.optim.lr_warmup_steps, lr_warmup_steps_ratio: the quick loop has no warm-up of the learning rate; "
            "set 0"
        )
    if optim.lr_scheduler_type == "constant":
        return lambda step: 1.0
    if optim.lr_scheduler_type != "cosine":
        raise ValueError(
            f"actor.optim.lr_scheduler_type={optim.lr_scheduler_type}: must be constant or cosine in the quick loop"
        )
    least = float(optim.min_lr_ratio or 0.0)
    return lambda step: least + (1 - least) * 0.5 * (1 + math.cos(math.pi * min(step, steps) / steps))
