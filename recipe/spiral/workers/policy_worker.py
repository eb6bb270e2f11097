"""The workers of policy and critic, with all that the recipe adds to verl's."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

import ray
import torch
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.trainer.ppo.utils import Role

from ..rollouts import packed_storage  # noqa: F401  (registers it)
from . import packed_attention  # noqa: F401  (registers it)
from .mini_batch_worker import MiniBatchWorker
from .reference import ReferenceWorker
from .rendezvous import SCHEME
from .snapshot import SnapshotWorker

#: What of an optimizer's settings is followed (training/kept_settings.py); a rate besides.
_FOLLOWED = ("weight_decay", "betas")


class TrainedWorker(MiniBatchWorker):
    """Of the policy and of a critic. A resumed run goes on with the optimizer's settings that its start asks for."""

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def load_checkpoint(
        self, local_path: str, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None:
        with as_asked(self.engine.optimizer, self.engine.lr_scheduler):
            super().load_checkpoint(local_path, hdfs_path, del_local_after_load)


@contextmanager
def as_asked(optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LambdaLR) -> Iterator[None]:
    """The block loads a checkpoint's state into both. Afterwards their settings are as before, and the rate is that of
    the step which the checkpoint has come to."""
    asked = [{name: group[name] for name in _FOLLOWED if name in group} for group in optimizer.param_groups]
    rates = list(schedule.base_lrs)
    yield
    schedule.base_lrs = rates
    for group, settings, rate, factor in zip(optimizer.param_groups, asked, rates, schedule.lr_lambdas, strict=True):
        group.update(settings, initial_lr=rate, lr=rate * factor(schedule.last_epoch))


class PolicyWorker(SnapshotWorker, ReferenceWorker, DetachActorWorker):
    """A reference policy that can be updated, snapshots of the policy, and what extensions ask of it. Its ranks meet on
    one address. Weights can be kept on the host and brought back, which ``separate_async`` needs."""

    actor_worker_cls = ref_worker_cls = TrainedWorker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        os.environ.setdefault("DIST_INIT_METHOD", f"{SCHEME}://")  # verl's variable
        super().__init__(*args, **kwargs)
        gc.freeze()  # a collection of all that was imported would stop a step for half a second

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def skip_update(self) -> float:
        """As of a ``TrainedWorker``."""
        return float(self.actor.skip_update())

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def on_each_rank(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function(worker, *args)`` on each rank; what extensions measure of the policy where it is."""
        return function(self, *args)


def use_our_workers(classes: MutableMapping[Role, Any]) -> None:
    """Put our classes in the place of verl's, in the trainer's mapping of roles to Ray actor classes."""
    for role in classes.keys() & {Role.ActorRolloutRef, Role.ActorRollout, Role.Actor, Role.RefPolicy}:
        classes[role] = ray.remote(PolicyWorker)
    if Role.Critic in classes:
        classes[Role.Critic] = ray.remote(TrainedWorker)
