"""verl's worker of a policy or a critic, which tells turns from padding in each mini-batch.

verl divides the loss of every mini-batch by one number of rows. It takes an optimizer step for each, also where all
rows are padding. Some of its metrics are means over parts of a mini-batch, in which a part with few tokens counts like
any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import Sampler
from verl.single_controller.base.decorator import Dispatch, make_nd_compute_dataproto_dispatch_fn, register
from verl.utils import tensordict_utils as tu
from verl.utils.device import get_device_name
from verl.utils.metric.utils import AggregationType, Metric
from verl.workers.engine_workers import TrainingWorker

from .. import extensions

#: How many mini-batches verl's worker cuts a batch into, where it is not told of how many rows each is.
MINI_BATCHES = "num_mini_batch"
#: Tokens of a mini-batch that are trained, on all ranks together.
TRAINED_TOKENS = "spiral_trained_tokens"


class MiniBatchWorker(TrainingWorker):
    """The loss of a mini-batch is the mean over its turns; one in which no token is trained takes no optimizer step."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def set_loss_fn(self, loss_fn: Any) -> None:
        policys = self.config.model_type != "value_model"  # a critic has this class, too
        for extension in extensions.loaded() if policys else ():
            loss_fn = extension.wrap_loss(loss_fn)
        super().set_loss_fn(TokenMeans(loss_fn))

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_mini_batch(self, data: Any) -> Any:
        """The batch is cut into a fixed number of mini-batches: verl's trainer says a fixed number of rows, and would
        take more steps the longer the games. Where rows are shuffled, padding stays in its place, so that mini-batches
        keep their sizes."""
        if tu.get(data, MINI_BATCHES) is not None:
            tu.pop(data, "mini_batch_size")
        options = dict(tu.get(data, "dataloader_kwargs", default={}))
        if options.pop("shuffle", False):
            seed = tu.get(data, "seed", default=42) + self.engine.get_data_parallel_rank()
            sampler = ShuffledTurns(turns_in(data), seed, tu.get(data, "force_group_size", default=1))
            tu.assign_non_tensor(data, dataloader_kwargs={**options, "sampler": sampler})
        return super().train_mini_batch(data)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skip_update(self) -> float:
        """A training step in which nothing is trained; returns the next one's learning rate."""
        return float(self.engine.lr_scheduler_step())

    @register(dispatch_mode=make_nd_compute_dataproto_dispatch_fn(mesh_name="train"), blocking=False)
    def train_batch(self, data: Any) -> Any:
        here = [int(turns_in(data).sum()), int(data["response_mask"].sum())]
        counts = torch.tensor(here, device=get_device_name())
        torch.distributed.all_reduce(counts, group=self.engine.get_data_parallel_group())
        turns, tokens = counts.tolist()
        if tokens:
            tu.assign_non_tensor(data, global_batch_size=turns, **{TRAINED_TOKENS: tokens})
            return super().train_batch(data)
        metrics = {}
        if tu.get(data, "update_lr_scheduler", default=False):  # it counts training steps, not the optimizer's
            metrics["lr"] = self.engine.lr_scheduler_step()
        return tu.get_tensordict(tensor_dict={}, non_tensor_dict={"metrics": metrics})


def turns_in(data: Any) -> torch.Tensor:
    """Which rows are turns: of a row of padding verl says that it has no turns. [num_rows]"""
    return torch.as_tensor(tu.get(data, "num_turns")) > 0


class ShuffledTurns(Sampler[int]):
    """Turns change places with turns, in each epoch anew; padding stays where it is.

    Args:
        turns: which rows are turns. [num_rows]
        together: so many rows, one after the other, stay side by side.
    """

    def __init__(self, turns: torch.Tensor, seed: int, together: int = 1) -> None:
        self._turns = turns.view(-1, together)
        self._generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return self._turns.numel()

    def __iter__(self) -> Iterator[int]:
        order = torch.arange(self._turns.numel()).view_as(self._turns)
        places = self._turns[:, 0].nonzero().squeeze(-1)
        order[places] = order[places[torch.randperm(len(places), generator=self._generator)]]
        return iter(order.flatten().tolist())


@dataclass(frozen=True)
class TokenMeans:
    """verl's loss function, whose metrics that are means become means over all tokens of a mini-batch.

    verl takes the mean of those of its parts (ranks, micro-batches), and a part may be padding. Each part's value gets
    the weight of its tokens here, and verl is told to add up.
    """

    loss: Callable[..., tuple[torch.Tensor, dict[str, Any]]]

    def __call__(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        loss, metrics = self.loss(model_output=model_output, data=data, dp_group=dp_group)
        metrics |= positions(data)
        tokens = tu.get(data, TRAINED_TOKENS)
        if tokens is None:
            return loss, metrics
        # verl adds up over micro-batches what it has averaged over ranks
        weight = float(data["response_mask"].sum()) / tokens * data["dp_size"]
        return loss, {name: _weighted(metric, weight) for name, metric in metrics.items()}


def positions(data: Any) -> dict[str, Metric]:
    """Of rows that go through the model together: the tokens of turns, and the positions that are computed."""
    lengths = data["input_ids"].offsets().diff()
    padded = not tu.get(data, "use_remove_padding", default=True)
    computed = len(lengths) * int(lengths.max()) if padded else int(lengths.sum())
    tokens = int(lengths[turns_in(data).to(lengths.device)].sum())
    counts = {"tokens": tokens, "positions": computed}
    return {name: Metric(AggregationType.SUM, float(count)) for name, count in counts.items()}


def _weighted(metric: Any, weight: float) -> Any:
    if isinstance(metric, Metric):
        if metric.aggregation is not AggregationType.MEAN:
            return metric
        metric = metric.aggregate()
    return Metric(AggregationType.SUM, weight * metric) if isinstance(metric, float) else metric
