"""The settings that a resumed run must have in common with its checkpoint.

With another value the run would go on, and train silently wrong: games would be drawn with keys that were played,
advantages compared with other baselines, weights added to another model. All other settings are the start's; of the
optimizer's, whose state a checkpoint holds, too (workers/policy_worker.py).
"""

from __future__ import annotations

from typing import Any

from omegaconf import DictConfig, OmegaConf


def kept_settings(config: DictConfig) -> dict[str, Any]:
    """Their values, as JSON has them."""
    asynchronous = config.trainer.v1.trainer_mode != "sync"
    model = config.actor_rollout_ref.model
    return {
        "seed": config.seed,
        "trainer.v1.trainer_mode": "asynchronous" if asynchronous else "sync",
        "batch_unit": config.batch_unit,
        # in sync mode a game of a batch of turns gets its number when it is launched
        "data.train_batch_size": config.data.train_batch_size if asynchronous or config.batch_unit == "games" else None,
        "actor_rollout_ref.model.path": model.path,
        "actor_rollout_ref.model.lora_alpha": model.lora_alpha if model.lora_rank else None,
        "algorithm.rae": OmegaConf.to_container(config.algorithm.rae, resolve=True),
    }
