"""The types and ranges of the lab's own settings; their defaults are in ``config/extension/lab.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from hydra.core.config_store import ConfigStore

from ..config import within

Action = StrEnum("Action", "warn stop off")


@dataclass
class Guard:
    action: Action
    window: int = within(1)
    patience: int = within(1)
    shorter: float | None = within(0, 1)
    short_reasoning: float | None = within(0, 1)
    reasoning_chars: int = within(0)
    entropy_low: float | None = within(0)
    entropy_high: float | None = within(0)
    role_imbalance: float | None = within(0, 1)
    invalid: float | None = within(0, 1)
    grad_norm: float | None = within(0)


ConfigStore.instance().store(group="extension", name="lab_schema", package="_global_", node={"guard": Guard})
