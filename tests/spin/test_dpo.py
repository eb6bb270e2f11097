"""DPO's loss: against the formula, through verl's own loss function, and as a whole update by two ranks."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.utils import tensordict_utils as tu

from recipe.spiral.spin.dpo import PairLoss, dpo_losses, log_ratios
from recipe.spiral.spin.dpo_settings import DPO, DpoSettings
from tests.workers.test_mini_batch_worker import (
    LIMIT,
    Row,
    apart,
    composed,
    outputs,
    random_model,
    rows_of,
    updated,
)

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


#: Tokens of the longest response; the others have eight at most.
LONG = 90

# -- a whole update ----------------------------------------------------------------------------------------------------


def pairs_of(model: Any, number: int, seed: int) -> list[Row]:
    """Random pairs: two responses to one prompt, the chosen one first. In the first one response is very long."""
    rows = rows_of(model, 2 * number, seed)
    for chosen, rejected in zip(rows[::2], rows[1::2], strict=True):
        rejected.prompt = chosen.prompt
        chosen.advantage, rejected.advantage = 1.0, -1.0
    for name in ("response", "old", "reference"):
        setattr(rows[0], name, getattr(rows[0], name).repeat(LONG)[:LONG])
    return rows


class Plain:
    """DPO in plain torch, on one rank, a mini-batch at a time."""

    def __init__(self, model: Any, config: DictConfig, settings: DpoSettings) -> None:
        self.model, self.actor, self.settings = model.train(), config.actor, settings
        optim = config.actor.optim
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=optim.lr, betas=tuple(optim.betas), weight_decay=optim.weight_decay
        )

    def update(self, rows: list[Row], mini_batches: int) -> dict[str, float]:
        pairs = len(rows) // 2
        cuts = [2 * (pairs * number // mini_batches) for number in range(mini_batches + 1)]
        steps = [self._step(rows[first:last]) for first, last in pairwise(cuts) if first < last]
        return {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}

    def _step(self, rows: list[Row]) -> dict[str, float]:
        log_probs, _, mask = outputs(self.model, rows)
        ratios = []
        for row, own, real in zip(rows, log_probs, mask, strict=True):
            ratio = (own[real] - row.reference).sum()
            ratios.append(ratio if self.settings.log_prob == "sum" else ratio / len(row.response))
        differences = torch.stack([chosen - rejected for chosen, rejected in zip(ratios[::2], ratios[1::2])])  # noqa: B905
        beta = self.settings.beta
        if self.settings.loss_type == "ipo":
            losses = (differences - 1 / (2 * beta)) ** 2
        else:
            losses = -torch.log(torch.sigmoid(beta * differences))
        total = losses.mean()
        if self.actor.kl_loss_coef:
            reference = torch.nn.utils.rnn.pad_sequence([row.reference for row in rows], batch_first=True)
            difference = (reference - log_probs)[:, :]
            kl = (difference.exp() - difference - 1) * mask  # k3
            total = total + self.actor.kl_loss_coef * (kl.sum(-1) / self.actor.loss_scale_factor).mean()
        self.optimizer.zero_grad()
        total.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.actor.grad_clip)
        self.optimizer.step()
        return {
            "grad_norm": float(norm),
            "actor/dpo_accuracy": float((differences > 0).float().mean()),
            "actor/dpo_margin": beta * float(differences.mean()),
        }


@pytest.mark.e2e
@pytest.mark.timeout(3 * LIMIT)
@pytest.mark.parametrize(
    ("settings", "overrides"),
    [
        # several micro-batches, by their tokens
        (DpoSettings(0.5), ["actor_rollout_ref.actor.ppo_max_token_len_per_gpu=260"]),
        # padded to one length, and with a KL term
        (
            DpoSettings(0.3, "ipo", log_prob="mean"),
            [
                "actor_rollout_ref.model.use_remove_padding=false",
                "actor_rollout_ref.model.override_config.attn_implementation=sdpa",
                "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=260",
                "actor_rollout_ref.actor.kl_loss_coef=0.2",
                "actor_rollout_ref.actor.kl_loss_type=k3",
            ],
        ),
        # two pairs at a time
        (
            DpoSettings(0.5),
            [
                "actor_rollout_ref.actor.use_dynamic_bsz=false",
                "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2",
                "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=2",
            ],
        ),
    ],
    ids=["by_tokens", "padded", "fixed"],
)
def test_an_update_by_two_ranks_is_that_of_plain_torch(
    tmp_path: Path, settings: DpoSettings, overrides: list[str]
) -> None:
    """Twenty-five pairs in three mini-batches; then two in three, one of which is empty and takes no step."""
    model = random_model(tmp_path / "model")
    config = composed(
        tmp_path,
        *("model=tiny", "loss=dpo"),
        *overrides,
        "actor_rollout_ref.actor.grad_clip=1e-3",
        "actor_rollout_ref.actor.optim.lr=1e-3",
    )
    batches = [(pairs_of(model, 25, seed=1), 3), (pairs_of(model, 2, seed=2), 3)]
    results = updated(tmp_path, config, batches, settings.batch_info)
    trained = Plain(model, config, settings)
    for (rows, mini_batches), (metrics, weights) in zip(batches, results, strict=True):
        before = {name: weight.clone() for name, weight in model.state_dict().items()}
        means = trained.update(rows, mini_batches)
        assert apart(weights, model, before) < 1e-4
        assert {name: metrics[name] for name in means} == pytest.approx(means, rel=1e-3, abs=1e-6)
