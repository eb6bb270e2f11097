"""What the YAML files of ``recipe/spiral/config`` compute when they are composed: their resolvers."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from omegaconf import OmegaConf

#: ``recipe/spiral``.
RECIPE = Path(__file__).resolve().parents[1]


def detect_hardware() -> str:
    """ "gpu" where a driver of an accelerator that verl knows is installed, otherwise "cpu"."""
    if (told := os.environ.get("SPIRAL_HARDWARE")) in ("cpu", "gpu"):
        return str(told)
    drivers = ("/dev/nvidiactl", "/dev/kfd", "/dev/davinci_manager")
    found = any(os.path.exists(path) for path in drivers) or shutil.which("nvidia-smi") is not None
    return "gpu" if found else "cpu"


def in_verl(path: str) -> str:
    """A path in verl's folder, without importing it."""
    found = importlib.util.find_spec("verl")
    if found is None or found.origin is None:
        raise ImportError("verl is not installed: run run_scripts/setup.sh")
    return str(Path(found.origin).parent / path)


OmegaConf.register_new_resolver("spiral_verl", in_verl, replace=True)
OmegaConf.register_new_resolver("spiral_hardware", detect_hardware, replace=True)
OmegaConf.register_new_resolver("spiral_file", lambda path: str(RECIPE / path), replace=True)
OmegaConf.register_new_resolver("spiral_not", lambda value: not value, replace=True)
OmegaConf.register_new_resolver("spiral_if", lambda value, known, then: then if value == known else None, replace=True)
OmegaConf.register_new_resolver("spiral_cores", lambda: len(os.sched_getaffinity(0)), replace=True)
