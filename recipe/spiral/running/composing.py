"""The resolvers that the YAML files of ``recipe/spiral/config`` use: ``${spiral_hardware:}`` and its like."""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import sys
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

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


#: What computes attention over packed rows without padding.
FLASH, TORCHS = "flash_attention_2", "sdpa"
#: Tokens of a micro-batch without flash-attn, where one turn is not longer.
PACKED_TOKENS = 8192


def detect_attention() -> str:
    """flash-attn's attention where it is installed, and PyTorch's otherwise."""
    return FLASH if importlib.util.find_spec("flash_attn") is not None else TORCHS


def packed_tokens(most: int, _root_: DictConfig) -> int:
    """The tokens of a micro-batch: fewer where PyTorch's attention computes over each pair of its tokens.

    With ``loss=dpo`` it always holds two turns, because both responses of a pair are in one micro-batch.
    """
    data, model = _root_.data, _root_.actor_rollout_ref.model
    turn = int(data.max_prompt_length) + int(data.max_response_length)
    pairs = _root_.algorithm.adv_estimator == "dpo"
    most = max(most, 2 * turn) if pairs else most
    if not model.use_remove_padding or model.override_config.get("attn_implementation") != TORCHS:
        return most
    return min(most, max(PACKED_TOKENS, 2 * turn if pairs else turn))


def ray_cores(gpus: int) -> int:
    """What a Ray of the run's own counts with: three cores for each GPU of the policy and one for each of an opponent
    are reserved, and some thirty helpers want one each."""
    return max(len(os.sched_getaffinity(0)), 32 + 4 * gpus)


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
OmegaConf.register_new_resolver("spiral_attention", detect_attention, replace=True)
OmegaConf.register_new_resolver("spiral_tokens", packed_tokens, replace=True)
OmegaConf.register_new_resolver("spiral_ray_cores", ray_cores, replace=True)
OmegaConf.register_new_resolver("spiral_file", lambda path: str(RECIPE / path), replace=True)
OmegaConf.register_new_resolver("spiral_not", lambda value: not value, replace=True)
OmegaConf.register_new_resolver("spiral_if", lambda value, known, then: then if value == known else None, replace=True)
OmegaConf.register_new_resolver(
    "spiral_choose", lambda value, known, then, otherwise: then if value == known else otherwise, replace=True
)
OmegaConf.register_new_resolver(
    "spiral_versions", lambda staleness: None if staleness is None else staleness + 1, replace=True
)
OmegaConf.register_new_resolver(
    "spiral_correction",
    lambda mode, bypass, estimator: None if mode == "sync" or bypass or estimator == "dpo" else "token",
    replace=True,
)
OmegaConf.register_new_resolver("spiral_sum", lambda *numbers: sum(numbers), replace=True)
OmegaConf.register_new_resolver("spiral_product", lambda *numbers: math.prod(numbers), replace=True)
OmegaConf.register_new_resolver("spiral_cores", lambda: len(os.sched_getaffinity(0)), replace=True)
