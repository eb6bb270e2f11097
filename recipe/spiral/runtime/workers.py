"""The workers of policy and critic that take a batch's rows apart once, and read packed rows."""

from __future__ import annotations

from ..workers.policy_worker import Kinds, PolicyWorker, SeparateWorker, TrainedWorker
from . import packed_storage  # noqa: F401  (registers it)
from .rows_once import RowsOnceWorker


class FastTrainedWorker(TrainedWorker, RowsOnceWorker):
    """Of the policy and of a critic."""


class FastPolicyWorker(PolicyWorker):
    """The policy's, with its reference."""

    actor_worker_cls, ref_worker_cls = FastTrainedWorker, RowsOnceWorker


class FastSeparateWorker(FastPolicyWorker, SeparateWorker):
    """Where the policy's engine has devices of its own."""


FAST_KINDS = Kinds(FastPolicyWorker, FastSeparateWorker, FastTrainedWorker)
