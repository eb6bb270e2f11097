"""What serves opponents that are models: engines of their own, or with LoRA the policy's engines, as adapters.

The engines themselves are in ``workers.engine``; what follows from the config is here, because it is checked before
verl and vLLM are imported.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from .fixed_opponents import MODEL, parse_opponents


def has_adapter(config: Any) -> bool:
    """Whether the policy is a LoRA adapter for its engine: then its opponents are adapters, too."""
    model = config.actor_rollout_ref.model
    merged = bool(OmegaConf.select(model, "lora.merge", default=False))
    return int(model.lora_rank or 0) > 0 and not merged


def members_loaded(config: Any) -> int:
    """How many members of the pool are loaded at a time at most. In the asynchronous modes games go on over several
    steps, so that these are also members of steps before."""
    fsp, mode = config.fsp, config.trainer.v1.trainer_mode
    return int(fsp.members_per_step) * (1 if mode == "sync" else 2) if fsp.enabled else 0


def models_served(config: Any) -> int:
    """How many models are loaded at a time at most, besides the policy."""
    fixed = [each for each in parse_opponents(config.opponents) if each.kind == MODEL and each.share > 0]
    return len(fixed) + members_loaded(config)
