"""What a run's precision is, and what follows from it."""

from __future__ import annotations

import sys

from omegaconf import DictConfig, OmegaConf

#: verl's and vLLM's names of full precision.
_FULL = ("float32", "fp32", "float", "32")


def reduced_precision(config: DictConfig) -> str | None:
    """The type in which the engine or the trainer computes, if it is not float32; ``auto`` may be any."""
    mixed = config.actor_rollout_ref.actor.fsdp_config.get("mixed_precision") or {}
    types = (str(config.actor_rollout_ref.rollout.dtype), str(mixed.get("param_dtype", "bf16")))
    return next((name for name in types if name not in _FULL), None)


def follow_precision(config: DictConfig) -> None:
    """Switch ``bypass_mode`` off where the engine's log-probabilities are not the trainer's, and say what a preset's
    results were measured in."""
    computed, device = reduced_precision(config), config.trainer.device
    correction = config.algorithm.rollout_correction
    # On a GPU vLLM's attention multiplies float32 in TF32, which has 10 bits after the point.
    if correction.bypass_mode and (computed is not None or device != "cpu"):
        where = f"on {device}" if computed is None else f"in {computed}"
        OmegaConf.update(config, "algorithm.rollout_correction.bypass_mode", False)
        _note(
            f"algorithm.rollout_correction.bypass_mode=true is switched off: {where} the engine's "
            "log-probabilities are not the trainer's"
        )
    if computed is not None and config.measured_in is not None:
        _note(f"this preset's results were measured in {config.measured_in}; this run computes in {computed}")


def _note(text: str) -> None:
    print(f"note: {text}", file=sys.stderr, flush=True)
