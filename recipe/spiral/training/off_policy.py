"""How far the learner has moved from the policy that wrote a turn, by the turn's staleness.

verl's own metrics (``rollout_corr/...``) are over the whole batch; these say how it grows with age, and so what
``asynchronous.max_staleness`` costs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch
import transfer_queue as tq
from verl.protocol import DataProto

from .rows import Row
from .staleness import MOST_SHOWN


def off_policy_metrics(batch: Any, rows: Sequence[Row | None], step: int, threshold: float) -> dict[str, float]:
    """``async/off_policy/{kl,ratio,truncated}/{staleness}``.

    kl: KL of the policy that wrote the turns from the learner, nats per token (Schulman's k3, which is never negative).
    ratio: mean probability under the learner divided by that when it was sampled. truncated: share of the tokens whose
    ratio is above ``threshold``. {} where the learner's log-probabilities are not computed (``bypass_mode``).

    Args:
        batch: verl's, with old log-probabilities.
        rows: the turn that each row is, in the batch's order; None for padding.
        step: verl's global step.
        threshold: ``algorithm.rollout_correction.rollout_is_threshold``, its upper bound.
    """
    # not response_mask: verl takes the tokens out of it that it rejects, which are the ones that have moved furthest
    fields = ["old_log_probs", "rollout_log_probs", "loss_mask"]
    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=fields)
    tensors = DataProto(batch=data.to_padded_tensor()).batch
    mask = tensors["loss_mask"].to(torch.bool)
    log_ratio = (tensors["old_log_probs"] - tensors["rollout_log_probs"]).clamp(-20, 20)
    of_age: dict[int, list[torch.Tensor]] = defaultdict(list)
    for place, row in enumerate(rows):
        if row is not None and row.turn.tokens is not None and row.turn.tokens.weight_versions is not None:
            age = min(step - 1 - row.turn.tokens.weight_versions[0], MOST_SHOWN)
            of_age[age].append(log_ratio[place][mask[place]])
    metrics: dict[str, float] = {}
    for age, parts in sorted(of_age.items()):
        if (logs := torch.cat(parts)).numel():
            ratio = logs.exp()
            metrics[f"async/off_policy/kl/{age}"] = (ratio - logs - 1).mean().item()
            metrics[f"async/off_policy/ratio/{age}"] = ratio.mean().item()
            metrics[f"async/off_policy/truncated/{age}"] = (ratio > threshold).float().mean().item()
    return metrics
