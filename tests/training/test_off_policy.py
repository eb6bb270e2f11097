"""Stale turns: without correction the gradient is another one, with it the right one, computed exactly."""

from __future__ import annotations

from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.core_algos import compute_policy_loss_vanilla
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights

from recipe.spiral.players.records import Turn
from recipe.spiral.training.in_flight import off_policy_metrics
from tests.fake_queue import FakeQueue
from tests.made import record, tokens, turn

#: The learner's logits of four actions at each of two tokens, and how they moved by a version.
LEARNER = torch.tensor([[0.5, 0.0, -0.5, 0.2], [0.1, 0.6, -0.2, 0.0]])
DRIFT = torch.tensor([[0.35, -0.3, 0.2, -0.25], [-0.3, 0.25, 0.3, -0.2]])
ANSWERS = torch.tensor(list(product(range(4), repeat=2)))
#: The outcome of each answer.
OUTCOMES = torch.tensor([1.0 if first == second else -0.5 for first, second in ANSWERS.tolist()])


class Loss(SimpleNamespace):
    """Of verl's: nothing is clipped, and the mean is over turns of the sum over tokens."""

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)


LOSS = Loss(clip_ratio=1e9, clip_ratio_low=1.0, clip_ratio_high=1e9, clip_ratio_c=1e9, global_batch_info={})


def log_probs(logits: torch.Tensor) -> torch.Tensor:
    """Of the tokens of all answers. [16, 2]"""
    of_token = torch.log_softmax(logits, -1)
    return torch.stack([of_token[place, ANSWERS[:, place]] for place in (0, 1)], dim=-1)


def gradient(
    behaviour: torch.Tensor, correction: str | None, threshold: float = 20.0, tokens_trained: int = 2
) -> torch.Tensor:
    """The gradient in the learner's logits, as verl computes it, in expectation over what ``behaviour`` writes.

    Each answer is a row of a batch of its own, and rows count by their probability: no sampling, so no noise.
    """
    wrote = log_probs(behaviour)
    logits = LEARNER.clone().requires_grad_()
    new = log_probs(logits)
    mask = torch.ones_like(wrote)
    mask[:, tokens_trained:] = 0
    weights = None
    if correction is not None:
        weights, _ = compute_rollout_correction_weights(new.detach() - wrote, mask, correction, threshold)
    total = torch.zeros(())
    for place, probability in enumerate(wrote.sum(-1).exp()):
        row = slice(place, place + 1)
        loss, _ = compute_policy_loss_vanilla(
            new[row].detach(),
            new[row],
            OUTCOMES[row].unsqueeze(-1).expand(1, 2),
            mask[row],
            "seq-mean-token-sum",
            LOSS,
            None if weights is None else weights[row],
        )
        total = total + probability * loss
    total.backward()
    assert logits.grad is not None
    return logits.grad


def error(stale: torch.Tensor, correction: str | None, threshold: float = 20.0) -> float:
    """The distance from the on-policy gradient, as a share of it."""
    right = gradient(LEARNER, None)
    return float((gradient(stale, correction, threshold) - right).norm() / right.norm())


@pytest.mark.parametrize("versions", [0.5, 1.0])
def test_stale_turns_give_a_wrong_gradient_and_the_right_one_with_correction(versions: float) -> None:
    """Here the outcome depends on both tokens together: what a token's own ratio corrects is small."""
    stale = LEARNER + versions * DRIFT
    without, per_token, per_turn = (error(stale, kind) for kind in (None, "token", "sequence"))
    assert without > versions, "as large as the gradient itself, at one version"
    assert per_turn < 1e-5, "a turn's whole ratio gives the gradient exactly"
    assert 0.9 * without < per_token < without


def test_where_one_token_is_the_answer_its_own_ratio_is_enough() -> None:
    """Outcomes are those of the first token then: the second is drawn alike by both."""
    stale = LEARNER + torch.stack([DRIFT[0], torch.zeros(4)])
    right = gradient(LEARNER, None, tokens_trained=1)
    wrong = gradient(stale, None, tokens_trained=1)
    corrected = gradient(stale, "token", tokens_trained=1)
    assert (wrong - right).norm() > 0.3 * right.norm() and (corrected - right).norm() < 1e-5 * right.norm()


def test_truncation_leaves_a_part_of_the_error() -> None:
    stale = LEARNER + 2 * DRIFT
    assert error(stale, "sequence") < 1e-5 < error(stale, "sequence", threshold=2.0) < error(stale, None) / 2


def test_on_policy_turns_need_none() -> None:
    for correction in (None, "token", "sequence"):
        assert error(LEARNER, correction) < 1e-6


def test_metrics_are_by_the_staleness_of_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = FakeQueue.install(monkeypatch)
    monkeypatch.setattr("recipe.spiral.training.in_flight.tq", queue)
    turns: list[Turn | None] = []
    for place, (version, log_ratio) in enumerate(((4, 0.0), (2, 1.0), (2, -1.0), (None, 9.0))):
        fields = {
            "old_log_probs": torch.tensor([-1.0 + log_ratio, -1.0]),
            "rollout_log_probs": torch.tensor([-1.0, -1.0]),
            "loss_mask": torch.tensor([1, 0]),
            "response_mask": torch.tensor([0, 0]),  # verl has rejected the turn
        }
        queue.partitions.setdefault("train", {})[f"row{place}"] = (fields, {})
        game = record(place, turns=[turn(0, 0, tokens=tokens(1))])
        if version is not None:
            written = game.turns[0].tokens
            assert written is not None
            object.__setattr__(written, "weight_versions", (version, version))
        turns.append(None if version is None else game.turns[0])
    batch = KVBatchMeta(partition_id="train", keys=[f"row{i}" for i in range(4)], tags=[{}] * 4)
    metrics = off_policy_metrics(batch, turns, step=5, threshold=2.0)
    e = torch.tensor(1.0).exp().item()
    assert metrics["async/off_policy/kl/0"] == 0 and metrics["async/off_policy/ratio/0"] == 1
    assert metrics["async/off_policy/ratio/2"] == pytest.approx((e + 1 / e) / 2)
    assert metrics["async/off_policy/kl/2"] == pytest.approx((e - 2 + 1 / e) / 2)
    assert metrics["async/off_policy/truncated/2"] == 0.5 and metrics["async/off_policy/truncated/0"] == 0
    assert len(metrics) == 6
