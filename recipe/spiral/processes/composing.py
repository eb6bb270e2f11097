"""The resolvers that the YAML files of ``recipe/spiral/config`` use: ``${spiral_hardware:}`` and its like; and
``${oc.env:NAME}``: a value of the environment, which may be a key whatever its name is.

The latter works in the run. In our files it stays as it is written, and in the settings of an endpoint, which trackers
and verl's own print show, the lab refuses it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.resolvers import oc

#: ``recipe/spiral``.
RECIPE = Path(__file__).resolve().parents[1]
#: What computes attention, as ``attn_implementation`` names it: flash-attn; PyTorch, row by row
#: (``workers.packed_attention``); and PyTorch as transformers asks for it, which computes it for all pairs of a
#: micro-batch's tokens where rows are packed.
FLASH, PACKED, TORCHS = "flash_attention_2", "spiral_packed", "sdpa"


def detect_hardware() -> str:
    """What SPIRAL_HARDWARE says, or else what ``run_scripts/setup.sh`` made this environment for.

    In another environment: gpu if a driver of an accelerator that verl knows is installed, else cpu.
    """
    made_for = Path(sys.prefix, ".spiral", "kind")
    chosen = os.environ.get("SPIRAL_HARDWARE") or (made_for.read_text().strip() if made_for.is_file() else "")
    if chosen:
        return chosen  # Hydra says which kinds there are
    drivers = ("/dev/nvidiactl", "/dev/kfd", "/dev/davinci_manager")
    return "gpu" if any(map(os.path.exists, drivers)) or shutil.which("nvidia-smi") else "cpu"


def ray_cores(gpus: int) -> int:
    """What a Ray of the run's own counts with: three cores for each GPU of the policy and one for each of an opponent
    are reserved, and some thirty helpers want one each."""
    return max(len(os.sched_getaffinity(0)), 32 + 4 * gpus)


def in_verl(path: str) -> str:
    """The path of a file or folder of verl's package, which is not imported; ImportError: it is not installed."""
    verl = importlib.util.find_spec("verl")
    if verl is None or verl.origin is None:
        raise ImportError("verl is not installed: run run_scripts/setup.sh")
    return str(Path(verl.origin).parent / path)


def folder(*paths: str) -> str:
    """The first of these folders of the recipe's that is there, or else the first: lab and spin may be deleted."""
    there = [path for path in paths if (RECIPE / path).is_dir()]
    return str(RECIPE / (*there, *paths)[0])


def plain(text: str) -> str:
    """A folder's name made of overrides, without what a file system, a shell or vLLM might take amiss."""
    name = re.sub(r"[^\w.,=-]+", "_", re.sub(r"[\[\]{}'\"+]", "", text)) or "job"
    return name if len(name) <= 150 else f"{name[:130]}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


_RESOLVERS: dict[str, Callable[..., Any]] = {
    "verl": in_verl,
    "folder": folder,
    "plain": plain,
    "hardware": detect_hardware,
    "attention": lambda: FLASH if importlib.util.find_spec("flash_attn") is not None else PACKED,
    "ray_cores": ray_cores,
    "cores": lambda: len(os.sched_getaffinity(0)),
}
for _name, _resolver in _RESOLVERS.items():
    OmegaConf.register_new_resolver(f"spiral_{_name}", _resolver, replace=True)


def as_written(config: Any) -> Any:
    """A config as a container: resolved, but for what is read from the environment, which stays as it is written."""
    untyped = OmegaConf.create(OmegaConf.to_container(config))
    OmegaConf.register_new_resolver("oc.env", _written, replace=True)
    try:
        return OmegaConf.to_container(untyped, resolve=True)
    finally:
        OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _written(*arguments: Any) -> str:
    return f"${{oc.env:{','.join('null' if each is None else str(each) for each in arguments)}}}"
