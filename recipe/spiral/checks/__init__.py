"""Refuses what would train wrongly without a word, or fail after minutes, before anything is started.

Types and names are Hydra's to refuse, by ``config.py``, which also has the ranges; what Ray, vLLM, verl or
transformers say by themselves within seconds, they say.
"""

from __future__ import annotations

from omegaconf import DictConfig

from ..config import out_of_range
from . import combinations, opponents_play, resumption
from .errors import ConfigError, refusals
from .prompts_fit import check_folder, check_model

__all__ = ["ConfigError", "check", "check_model", "refusals"]


def check(config: DictConfig) -> None:
    """Refuse, by a ConfigError, what can be seen to be wrong with a settled config without the model."""
    with refusals():
        for found in (out_of_range, *combinations.PARTS):
            for wrong in found(config):
                raise ConfigError(wrong)
        check_folder(config)
        for look in (*opponents_play.PARTS, *resumption.PARTS):
            look(config)
