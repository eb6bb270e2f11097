"""vLLM's worker on a CPU, with our patches, which are applied before vLLM is imported; its ranks meet on one address.

A run's and an evaluation's config name it as ``worker_cls``. An evaluation's engine names it for its own process, too.
"""

from __future__ import annotations

from . import cpu_patches

cpu_patches.apply()

from vllm.v1.worker.cpu_worker import CPUWorker  # noqa: E402

from .. import rendezvous  # noqa: E402, F401

__all__ = ["CPUWorker"]
