"""What a start asks for otherwise than the checkpoint that it goes on from has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from ..processes.runtime import FAST, STOCK
from ..storage.checkpoints import config_of, read_state, run_before
from ..storage.disk import read_small
from ..training.kept_settings import KEPT, Kept, kept_settings


def settings_before(config: DictConfig, checkpoint: Path) -> dict[str, Any]:
    """The values that a checkpoint was written with: of one of version 0.1.0, as far as its state, its run's config and
    verl's note on LoRA tell."""
    state = read_state(checkpoint)
    if "settings" in state:
        return dict(state["settings"])
    before = config_of(run_before(config, checkpoint))
    known = {} if before is None else kept_settings(before)
    known |= {kept.setting: state[kept.setting] for kept in KEPT if state.get(kept.setting) is not None}
    known["runtime"] = FAST if state.get("transfer_queue.backend.storage_backend") == "PackedStorage" else STOCK
    for part, model in (("actor", "actor_rollout_ref.model"), ("critic", "critic.model")):
        try:
            lora = json.loads(read_small(checkpoint / part / "lora_train_meta.json"))
            known |= {f"{model}.lora_rank": lora["r"], f"{model}.lora_alpha": lora["lora_alpha"]}
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return known


def changed(config: DictConfig, checkpoint: Path) -> list[tuple[Kept, Any, Any]]:
    """The settings of which a start asks for another value than the checkpoint has, with both."""
    state, before, now = read_state(checkpoint), settings_before(config, checkpoint), kept_settings(config)
    return [
        (kept, before[kept.setting], now[kept.setting])
        for kept in KEPT
        if kept.setting in before
        and kept.setting in now
        and kept.where(config, state)
        and not _same(kept.setting, before[kept.setting], now[kept.setting])
    ]


def _same(setting: str, before: Any, now: Any) -> bool:
    """Opponents may join where games are in flight; none of them may leave."""
    return set(before) <= set(now) if setting == "opponents" else bool(before == now)
