"""The workers of policy and critic, with all that the recipe adds to verl's."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, MutableMapping
from typing import Any

import ray
from verl.experimental.separation.engine_workers import DetachActorWorker
from verl.single_controller.base.decorator import Dispatch, register
from verl.trainer.ppo.utils import Role
from verl.workers.engine_workers import TrainingWorker

from ..rollouts import packed_storage  # noqa: F401  (registers it)
from . import packed_attention  # noqa: F401  (registers it)
from .mini_batch_worker import MiniBatchWorker
from .reference import ReferenceWorker
from .rendezvous import SCHEME
from .snapshot import SnapshotWorker
from .travelling import TravellingWorker


class TrainedWorker(MiniBatchWorker, TravellingWorker):
    """Mini-batches without their padding, and checkpoints of another torch: of the policy and of a critic."""


class PolicyWorker(SnapshotWorker, ReferenceWorker, DetachActorWorker):
    """A reference policy that can be updated, snapshots of the policy, and what extensions ask of it. Its ranks meet on
    one address. Weights can be kept on the host and brought back, which ``separate_async`` needs."""

    actor_worker_cls = TrainedWorker

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        os.environ.setdefault("DIST_INIT_METHOD", f"{SCHEME}://")  # verl's variable
        super().__init__(*args, **kwargs)
        gc.freeze()  # a collection of all that was imported would stop a step for half a second

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def on_each_rank(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call ``function(worker, *args)`` on each rank; what extensions measure of the policy where it is."""
        return function(self, *args)


def use_our_workers(
    classes: MutableMapping[Role, Any],
    policy: type[PolicyWorker] = PolicyWorker,
    critic: type[TrainingWorker] = TrainedWorker,
) -> None:
    """Put our classes in the place of verl's, in the trainer's mapping of roles to Ray actor classes."""
    for role in classes.keys() & {Role.ActorRolloutRef, Role.ActorRollout, Role.Actor, Role.RefPolicy}:
        classes[role] = ray.remote(policy)
    if Role.Critic in classes:
        classes[Role.Critic] = ray.remote(critic)
