"""The resolvers that the YAML files of ``recipe/spiral/config`` use: ``${spiral_hardware:}`` and its like."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from omegaconf import OmegaConf

#: ``recipe/spiral``.
RECIPE = Path(__file__).resolve().parents[1]


def detect_hardware() -> str:
    """What SPIRAL_HARDWARE says, or else what ``run_scripts/setup.sh`` made this environment for.

    In another environment: gpu if a driver of an accelerator that verl knows is installed, else cpu.
    """
    kind = Path(sys.prefix, ".spiral", "kind")
    for chosen in (os.environ.get("SPIRAL_HARDWARE"), kind.read_text().strip() if kind.is_file() else None):
        if chosen in ("cpu", "gpu"):
            return chosen
    drivers = ("/dev/nvidiactl", "/dev/kfd", "/dev/davinci_manager")
    return "gpu" if any(map(os.path.exists, drivers)) or shutil.which("nvidia-smi") else "cpu"


def in_verl(path: str) -> str:
    """The path of a file or folder of verl's package, which is not imported.

    Raises:
        ImportError: verl is not installed.
    """
    verl = importlib.util.find_spec("verl")
    if verl is None or verl.origin is None:
        raise ImportError("verl is not installed: run run_scripts/setup.sh")
    return str(Path(verl.origin).parent / path)


OmegaConf.register_new_resolver("spiral_verl", in_verl, replace=True)
OmegaConf.register_new_resolver("spiral_hardware", detect_hardware, replace=True)
OmegaConf.register_new_resolver("spiral_file", lambda path: str(RECIPE / path), replace=True)
OmegaConf.register_new_resolver("spiral_not", lambda value: not value, replace=True)
OmegaConf.register_new_resolver("spiral_if", lambda value, known, then: then if value == known else None, replace=True)
OmegaConf.register_new_resolver("spiral_sum", lambda *numbers: sum(numbers), replace=True)
OmegaConf.register_new_resolver("spiral_cores", lambda: len(os.sched_getaffinity(0)), replace=True)
