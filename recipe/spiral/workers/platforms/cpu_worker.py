"""vLLM on a CPU without verl: what its processes need is applied where this is imported.

An evaluation's engine names it twice (``config/engine/cpu.yaml``): for this process, before vLLM is imported, and as
the workers' extension, so that vLLM imports it in each of them before a model is loaded.
"""

from __future__ import annotations

from . import cpu_patches

cpu_patches.apply()


class CPUWorkerExtension:
    """Adds nothing to a worker: its module is what counts."""
