"""The update of the quick loop: the config's loss and optimizer in plain torch, on one device.

A batch has one update, whose old log-probabilities are those of the policy that is updated, so PPO's ratio is 1 and
nothing is clipped. The loss is then linear in the rows, so equal rows go through the model once, with the sum of their
weights. Rows of an older policy are weighted by truncated ratios. DPO's loss is the trainer's function of the
log-probabilities of pairs, for which equal rows go through the model once as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

    from recipe.spiral.spin.dpo import DpoSettings

#: A prompt and a response.
Row = tuple[tuple[int, ...], tuple[int, ...]]
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
    """

    scale: float
    entropy: float
    kl: float | None
    kl_type: str
    grad_clip: float
    dpo: DpoSettings | None = None
    rollout_is: str | None = None
    most: float = 2.0


class Learner:
    """A model, its optimizer and its reference.

    Args:
        model: the policy; it is trained in place.
        loss: the settings of the loss.
        optim: ``actor_rollout_ref.actor.optim`` of the config.
        steps: the number of training steps, for the learning rate's schedule.
    """

    def __init__(self, model: PreTrainedModel, loss: LossSettings, optim: Any, steps: int) -> None:
        import torch

        self.model, self.loss = model.train(), loss
        self.reference: PreTrainedModel | None = None
        if loss.kl is not None:
            self.refresh()
        self._optimizer = torch.optim.AdamW(
            model.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
        )
        self._schedule = torch.optim.lr_scheduler.LambdaLR(self._optimizer, rate(optim, steps))

    def refresh(self) -> None:
        """The reference becomes a copy of the policy."""
        import copy

        self.reference = copy.deepcopy(self.model).eval().requires_grad_(False)

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

    def pairs_objective(self, pairs: Sequence[Pair]) -> torch.Tensor:
        """DPO's loss of a batch, the mean over its pairs."""
        import torch
        from verl.trainer.ppo.core_algos import kl_penalty

        from recipe.spiral.spin.dpo import dpo_losses, log_ratios

        assert self.loss.dpo is not None and self.reference is not None
        places = {row: place for place, row in enumerate(dict.fromkeys(row for pair in pairs for row in pair))}
        ids, mask = self._padded(places)
        _, log_probs = _log_probs(self.model, ids)
        with torch.inference_mode():
            _, wanted = _log_probs(self.reference, ids)
        wanted = wanted.clone()
        at = torch.tensor([[places[chosen], places[rejected]] for chosen, rejected in pairs], device=ids.device)
        chosen, rejected = log_ratios(log_probs, wanted, mask, self.loss.dpo)[at].unbind(-1)
        total = dpo_losses(chosen, rejected, self.loss.dpo).mean()
        if self.loss.kl:
            apart = kl_penalty(log_probs, wanted, self.loss.kl_type)
            total = total + self.loss.kl * ((apart * mask).sum(1) / self.loss.scale)[at].mean()
        return total

    def _padded(self, rows: Collection[Row]) -> tuple[torch.Tensor, torch.Tensor]:
        """The texts' ids [rows, longest], and a mask of the responses' tokens [rows, longest - 1]."""
        import torch

        whole = [prompt + response for prompt, response in rows]
        ids = torch.zeros((len(whole), max(map(len, whole))), dtype=torch.long)
        mask = torch.zeros(ids.shape)
        for i, ((prompt, _), text) in enumerate(zip(rows, whole, strict=True)):
            ids[i, : len(text)] = torch.tensor(text)
            mask[i, len(prompt) : len(text)] = 1.0
        return ids.to(self.model.device), mask[:, 1:].to(self.model.device)

    def objective(self, rows: Mapping[Row, Weight]) -> torch.Tensor:
        """The loss of a batch."""
        import torch
        from verl.trainer.ppo.core_algos import kl_penalty

        ids, mask = self._padded(rows)
        advantages = torch.tensor([weight.advantage for weight in rows.values()], device=ids.device)
        counts = torch.tensor([float(weight.count) for weight in rows.values()], device=ids.device)
        log_p, chosen = _log_probs(self.model, ids)
        total = -(advantages * (chosen * self._corrected(mask, chosen.detach(), rows)).sum(1)).sum()
        if self.loss.entropy:
            entropy = -(log_p.exp() * log_p).sum(-1)
            total = total - self.loss.entropy * (counts * (entropy * mask).sum(1)).sum()
        if self.loss.kl is not None:
            assert self.reference is not None
            with torch.inference_mode():
                _, wanted = _log_probs(self.reference, ids)
            apart = kl_penalty(chosen, wanted.clone(), self.loss.kl_type)
            total = total + self.loss.kl * (counts * (apart * mask).sum(1)).sum()
        return total / self.loss.scale / counts.sum()

    def _corrected(self, mask: torch.Tensor, chosen: torch.Tensor, rows: Mapping[Row, Weight]) -> torch.Tensor:
        """The responses' mask with the ratio of each token, or of each row, to the policy that sampled it.

        Args:
            mask: of the responses' tokens [rows, longest - 1].
            chosen: log-probabilities of all tokens [rows, longest - 1].
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


def _log_probs(model: PreTrainedModel, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The log-probabilities of all tokens at each place, and of the next token of the text.

    [rows, length - 1, vocabulary], [rows, length - 1]
    """
    import torch

    log_p = torch.log_softmax(model(input_ids=ids).logits[:, :-1].float(), dim=-1)
    return log_p, log_p.gather(-1, ids[:, 1:, None])[..., 0]
