"""Refuses what would train wrongly without a word, or fail after minutes, before anything is started.

Types and names are Hydra's to refuse, by ``config.py``, which also has the ranges; what Ray, vLLM, verl or
transformers say by themselves within seconds, they say.
"""

from __future__ import annotations

from omegaconf import DictConfig

from ..config import out_of_range
from . import combinations, machine, opponents_play, resumption, verls
from .errors import ConfigError, refusals
from .prompts_fit import check_folder, check_model

__all__ = ["ConfigError", "check", "check_machine", "check_model", "refusals"]


def check(config: DictConfig) -> None:
    """Refuse, by a ConfigError, what can be seen to be wrong without the model, on any machine. The config is
    settled and not resolved."""
    parts = [part for module in (combinations, opponents_play, verls, resumption) for part in module.PARTS]
    with refusals():
        for wrong in out_of_range(config):
            raise ConfigError(wrong)
        for look in (combinations.has_model, check_folder, *parts):
            look(config)


def check_machine(config: DictConfig) -> None:
    """Refuse what this machine cannot do."""
    with refusals():
        for part in machine.PARTS:
            part(config)
