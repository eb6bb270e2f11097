"""The policy's workers, with all that the recipe adds to verl's."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import ray
from verl.trainer.ppo.utils import Role

from .reference import ReferenceWorker
from .snapshot import SnapshotWorker


class PolicyWorker(SnapshotWorker, ReferenceWorker):
    """A reference policy that can be updated, and snapshots of the policy."""


def use_policy_worker(classes: MutableMapping[Role, Any]) -> None:
    """Put ``PolicyWorker`` in the place of verl's worker, in the trainer's mapping of roles to Ray actor classes."""
    for role in classes.keys() & {Role.ActorRolloutRef, Role.ActorRollout}:
        classes[role] = ray.remote(PolicyWorker)
