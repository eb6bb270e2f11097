"""vLLM on a CPU without verl: importing this module applies the patches.

An evaluation's engine names it twice (``config/engine/cpu.yaml``): for its own process, before vLLM is imported, and as
the workers' extension, so that vLLM imports it in each worker before a model is loaded.
"""

from __future__ import annotations

from . import cpu_patches

cpu_patches.apply()


class CPUWorkerExtension:
    """Adds nothing to a worker: only the import of its module matters."""
