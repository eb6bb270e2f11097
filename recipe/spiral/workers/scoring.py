"""Scores whole answers with the policy that is trained, where it is: no second model, and no engine."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import torch
from verl.single_controller.base.decorator import Dispatch, register
from verl.utils.device import get_device_id, get_device_name, get_torch_device
from verl.workers.engine_workers import ActorRolloutRefWorker

from ..lab.models.answer_scores import Question, Scores, batches, log_probs, tree_attention


class ScoringWorker(ActorRolloutRefWorker):
    """verl's worker, which can score answers."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def score_answers(
        self, questions: Sequence[Question], ends: Sequence[int], temperature: float, max_tokens: int
    ) -> Scores:
        """This rank's part of the scores, in the precision that the policy is trained in."""
        engine = self.actor.engine
        made = batches(engine.module, questions, ends, max_tokens)
        ranks = torch.distributed.get_world_size()
        # Every rank runs as many batches, because each pass gathers the weights of all ranks' shards.
        mine = [made[i % len(made)] for i in range(torch.distributed.get_rank(), -(-len(made) // ranks) * ranks, ranks)]
        dtype = engine._autocast_dtype
        autocast: Any = nullcontext() if dtype == torch.float32 else torch.autocast(get_device_name(), dtype)
        scores: Scores = {}
        with engine.eval_mode(), torch.no_grad(), tree_attention(engine.module), autocast:
            for batch in mine:
                scores |= log_probs(engine.module, batch, temperature, get_device_id())
        # what torch keeps for later would be missing when the opponents' engines wake
        get_torch_device().empty_cache()
        return scores
