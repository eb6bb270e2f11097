"""The types and ranges of SPIN's own settings; their defaults are in ``config/extension/spin.yaml``."""

from __future__ import annotations

from dataclasses import dataclass

from hydra.core.config_store import ConfigStore

from ..config import within


@dataclass
class Branching:
    states: int = within(0)
    continuations: int = within(1)


@dataclass
class Questions:
    grader: str
    seconds: float = within(0.001)


_NODE = {"branching": Branching, "questions": Questions}
ConfigStore.instance().store(group="extension", name="spin_schema", package="_global_", node=_NODE)
